"""The functions that show the position of a thread in its loop, because no mark does, and for what it waits."""

import re
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NamedTuple

from otel_zernel_libraries.training.ledger import Position
from otel_zernel_libraries.training.library_folders import path_in_library
from otel_zernel_libraries.training.stacks import CodeLine

_CHECKPOINT, _COMPILE, _ENVIRONMENT = Position.CHECKPOINT, Position.COMPILE, Position.ENVIRONMENT
_ANY: Final = ""


class _Rule(NamedTuple):
    position: Position
    file: str
    """A pattern that the end of a file's path matches; of a file of PyTorch, `torch/...`: its path in the library."""
    name: str = _ANY
    """A pattern that the whole name of a function matches, without its class; empty for all."""


class Role(Enum):
    """What a thread in a function waits for."""

    GIVING = auto()
    """It hands something to another thread, or waits for its end: it gets no data."""
    TAKING = auto()
    """It gets something from another thread."""
    SWITCHING = auto()
    """An event loop waits for any of its tasks."""


_RULES: Final = (
    _Rule(_CHECKPOINT, "torch/serialization[.]py", "_?(legacy_)?save|persistent_id"),
    _Rule(_CHECKPOINT, "torch/distributed/checkpoint/(?!state_dict_loader)[^/]+[.]py"),
    _Rule(_CHECKPOINT, "/safetensors/[a-z]+[.]py", "_?(save|serialize|flatten).*"),
    _Rule(_CHECKPOINT, "/accelerate/(accelerator|checkpointing)[.]py", "save_.*"),
    _Rule(_CHECKPOINT, "/callbacks/model_checkpoint[.]py", "_?save_.*"),  # of Lightning and Keras
    _Rule(_CHECKPOINT, "/(pytorch_lightning|lightning|lightning_fabric)/.*[.]py", "(save|dump)_.*"),
    _Rule(_CHECKPOINT, "/transformers/(.*/)?[a-z0-9_]+[.]py", "_?save_.*|_save"),
    _Rule(_CHECKPOINT, "/deepspeed/.*[.]py", "_?save_.*|_?create_.*_checkpoint"),
    _Rule(_CHECKPOINT, "/keras/src/saving/.*[.]py", "_?(save|write|serialize)_.*"),
    _Rule(_CHECKPOINT, "[.]py", "_?save_(checkpoint|ckpt|model|pretrained|state|weights)s?"),
    _Rule(_COMPILE, "torch/_dynamo/(?!eval_frame|external_utils|utils|decorators|callback).*[.]py"),
    _Rule(
        _COMPILE,
        "torch/_inductor/(?!output_code|utils|cudagraph|config|runtime/|ops_handler|compile_fx|codecache).*[.]py",
    ),
    _Rule(_COMPILE, "torch/_inductor/(compile_fx|codecache)[.]py", "(?!(run|__call__)$).*"),  # these run the result
    _Rule(
        _COMPILE,
        "torch/_inductor/runtime/[a-z_]+[.]py",
        "(autotune|benchmark|precompile|_?make_launcher|coordinate).*",
    ),
    _Rule(_COMPILE, "torch/_functorch/_aot_autograd/(?!runtime_wrappers|utils|subclass).*[.]py"),
    _Rule(_COMPILE, "torch/fx/(passes|experimental)/.*[.]py"),
    _Rule(_COMPILE, "torch/_subclasses/.*[.]py"),
    _Rule(_COMPILE, "torch/utils/cpp_extension[.]py"),
    _Rule(_COMPILE, "/triton/(compiler|backends)/.*[.]py"),
    _Rule(_COMPILE, "/triton/runtime/autotuner[.]py", "_bench|prune_configs"),
    _Rule(
        _ENVIRONMENT,
        "/(gym|gymnasium|pettingzoo|supersuit|dm_env|dm_control|brax|procgen|envpool|pufferlib)/.*[.]py",
        "step.*|reset.*",
    ),
    _Rule(_ENVIRONMENT, "/(vec_env|envs?|environments?)/[^/]+[.]py", "(async_)?(step|reset)(_.*)?"),
    _Rule(_ENVIRONMENT, "/([a-z0-9_]+_)?env(ironment)?s?[.]py", "step|reset"),
)

_ROLES: Final = (
    (
        Role.GIVING,
        re.compile(
            r".*/(?:"
            r"queue[.]py:(?:put|join)"
            r"|threading[.]py:join"
            r"|multiprocessing/(?:queues|pool)[.]py:(?:put|join|join_thread)"
            r"|concurrent/futures/(?:thread|process)[.]py:shutdown"
            r"|logging/[a-z_]+[.]py:.*"
            r")"
        ),
    ),
    (
        Role.TAKING,
        re.compile(
            r".*/(?:queue[.]py:get|multiprocessing/(?:queues|pool)[.]py:(?:get|next)|[^/]*:__(?:next|getitem)__)"
            r"|(?!.*/(?:(?:site|dist)-packages|python3[.]\d+)/).*"
            r":_*(?:get|fetch|load|next|read|sample|draw|recv|receive|pull|pop|preload|prefetch|dequeue)(?:_.*)?"
        ),
    ),
    (Role.SWITCHING, re.compile(r".*/(?:asyncio/base_events|trio/_core/_run|eventlet/hubs/hub)[.]py:.*")),
)
"""FILE:FUNCTION of Python's standard library, of event loops, of iterators and sequences, and of a program's functions
whose names say that they get something."""
_PYTORCH: Final = "torch/"
_PATTERNS: Final = [
    (
        rule.position,
        re.compile(rule.file if rule.file.startswith(_PYTORCH) else f".*{rule.file}"),
        re.compile(rule.name or ".*"),
    )
    for rule in _RULES
]


def position_of(line: CodeLine) -> Position | None:
    """The position that a frame of this function shows; None for most. From Python 3.11 on, the name has the class:
    `Trainer.fit`."""
    return _position_of(line.file, path_in_library(line), line.function)


@lru_cache(maxsize=8_192)
def _position_of(file: str, path: str, function: str) -> Position | None:
    name = function.rpartition(".")[2]
    for position, files, names in _PATTERNS:
        if names.fullmatch(name) and (files.fullmatch(path) or files.fullmatch(file)):
            return position
    return None


@lru_cache(maxsize=8_192)
def role_of(file: str, function: str) -> Role | None:
    """What a thread in this function waits for; None if the function does not say so."""
    path, name = file.replace("\\", "/"), function.rpartition(".")[2]
    return next((role for role, pattern in _ROLES if pattern.fullmatch(f"{path}:{name}")), None)
