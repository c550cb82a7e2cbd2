"""The folders from which a process imports libraries, and the paths of files in them.

Most of these folders have names that only Python uses: `site-packages`, `lib/python3.11`, the archives of packages. The
names decide, and not the place of the mapped interpreter: Python has paths as it was asked for them, and the kernel
resolves the symbolic links of conda, pyenv and uv. PyTorch may lie elsewhere, in a checkout or where `pip install
--target` has put it. Its mapped library shows that.
"""

import re
import sys
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final, NamedTuple, Self

from otel_zernel_libraries.training.stacks import CodeLine

_NAMED: Final = re.compile(
    r".*/(?:(?:site|dist)-packages|[^/]+\.(?:egg|whl))/|.*/(?:lib(?:64)?/python3\.\d+t?|python3\d+\.zip)/"
)
_LIBRARY: Final = re.compile(r"(.*/)torch/lib/libtorch_python[^/]*\.so[^/]*")
_EXTENSION: Final = re.compile(r"(.*/)torch/_C\.[^/]*so")
"""Distributions have the library elsewhere."""
_NUMPY: Final = re.compile(r"(.*/)numpy/_?core/_multiarray_umath\.[^/]*so")
_CORE: Final = re.compile(r"(?:torch|numpy|triton|functorch|torchgen)/|numpy\.")
_PYTORCH: Final = "torch/"


class LibraryFolders(NamedTuple):
    """Those of one process that have no name of Python. A folder is here with its last two names, and with slashes."""

    pytorch: str = ""
    """`/pytorch/torch/`; empty if it is not known."""
    packages: str = ""
    """A folder that PyTorch and NumPy share: `/opt/libs/`."""

    @classmethod
    def of(cls, mapped: Iterable[str]) -> Self:
        """Those of a process that has mapped these files."""
        files = list(mapped)
        parents = _parents(_LIBRARY, files) or _parents(_EXTENSION, files)
        if not parents:
            return cls()
        shared = parents & _parents(_NUMPY, files)
        return cls(_last_names(f"{min(parents)}{_PYTORCH}"), _last_names(min(shared)) if shared else "")

    def path_of(self, file: str) -> str:
        """The path of a file within its library's folder: `torch/nn/modules/linear.py`; empty for the user's own
        files. In a frozen program, files have relative paths."""
        if match := _NAMED.match(file):
            return file[match.end() :]
        if path := _within(self.packages, file):
            return path
        if path := _within(self.pytorch, file):
            return f"{_PYTORCH}{path}"
        return "" if file.startswith(("/", "<")) or not is_core(file) else file


def _parents(library: re.Pattern[str], files: Collection[str]) -> set[str]:
    return {match[1] for match in map(library.fullmatch, files) if match}


def _last_names(folder: str) -> str:
    return f"/{'/'.join(folder.split('/')[-3:-1])}/".replace("//", "/")


def _within(folder: str, file: str) -> str:
    """The path in a folder that is known by its last names; empty if the file is elsewhere. One name is not enough,
    except in the root."""
    at = file.find(folder) if folder else -1
    return file[at + len(folder) :] if at == 0 or (at > 0 and folder.count("/") > 2) else ""


@lru_cache(maxsize=8_192)
def _default_path_of(file: str) -> str:
    return LibraryFolders().path_of(file)


def path_in_library(line: CodeLine) -> str:
    """The path of a line's file within its library's folder; empty for the user's own files."""
    return _default_path_of(line.file) if line.library_path is None else line.library_path


def is_of_pytorch(line: CodeLine) -> bool:
    """Whether a line is in a file of PyTorch."""
    return path_in_library(line).startswith(_PYTORCH)


def waits_for_gpu(line: CodeLine) -> bool:
    """Whether a line is in a function of PyTorch that waits for the GPU, and does nothing else."""
    return path_in_library(line).startswith("torch/cuda/") and line.function.rpartition(".")[2] == "synchronize"


def is_standard(path: str) -> bool:
    """Whether a path in a library's folder is of Python's standard library."""
    return path.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names and path.endswith(".py")


def is_core(path: str) -> bool:
    """Whether a path in a library's folder is of PyTorch, of NumPy, or of the standard library."""
    return is_standard(path) or _CORE.match(path) is not None
