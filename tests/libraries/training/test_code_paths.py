"""The lines that a person sees of a stack."""

import pytest

from otel_zernel_libraries.training.code_paths import (
    Tier,
    folder_of,
    line_text,
    of_worker,
    place_of,
    short_function,
    tier_of,
    waits_for_python,
)
from otel_zernel_libraries.training.stacks import CodeLine
from tests.libraries.training.made_stacks import (
    BACKWARD,
    CALLS,
    CONDITION,
    FETCH,
    LOOP,
    MAIN,
    PACKAGES,
    QUEUE,
    STANDARD,
    TOKENIZE,
    WORKER_LOOP,
    WRAPPER,
    line,
)

FOLDER = "/home/me/run/"


@pytest.mark.parametrize(
    ("file", "function", "tier"),
    [
        ("/home/me/run/train.py", "main", Tier.USER),
        ("<stdin>", "<module>", Tier.USER),
        ("/tmp/ipykernel_7/12.py", "<module>", Tier.USER),
        ("/home/me/lib/python/train.py", "main", Tier.USER),
        (f"{PACKAGES}/transformers/trainer.py", "Trainer.train", Tier.PACKAGE),
        ("/usr/lib/python3/dist-packages/yaml/reader.py", "Reader.peek", Tier.PACKAGE),
        (f"{PACKAGES}/torch/_tensor.py", "Tensor.backward", Tier.CORE),
        (f"{PACKAGES}/numpy/lib/function.py", "median", Tier.CORE),
        (f"{STANDARD}/json/encoder.py", "JSONEncoder.encode", Tier.CORE),
        ("/opt/conda/lib/python3.13t/copy.py", "deepcopy", Tier.CORE),
        ("<eval_with_key>.7", "forward", Tier.CORE),
        ("/tmp/torchinductor_me/ab/cab.py", "call", Tier.CORE),
        (f"{PACKAGES}/torch/nn/modules/module.py", "Module._call_impl", Tier.PLUMBING),
        (f"{PACKAGES}/torch/nn/modules/module.py", "_wrapped_call_impl", Tier.PLUMBING),
        (f"{PACKAGES}/torch/nn/modules/module.py", "Module.load_state_dict", Tier.CORE),
        (f"{PACKAGES}/torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper", Tier.PLUMBING),
        (f"{PACKAGES}/torch/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", Tier.PLUMBING),
        (f"{PACKAGES}/accelerate/utils/operations.py", "ConvertOutputsToFp32.__call__", Tier.PLUMBING),
        (f"{STANDARD}/contextlib.py", "ContextDecorator.__call__.<locals>.inner", Tier.PLUMBING),
        ("<frozen runpy>", "_run_code", Tier.PLUMBING),
        # projects of the user with such names
        ("/home/me/torch/train.py", "main", Tier.USER),
        ("/home/me/torch/nn/modules/linear.py", "Linear.forward", Tier.USER),
        ("/home/me/torch/nn/model.py", "Net.forward", Tier.USER),
        ("/home/me/torch/optim/lion.py", "Lion.step", Tier.USER),
        ("/home/me/torch/optim/adam_mini.py", "AdamMini.step", Tier.USER),
        ("/home/me/torch/utils/data/dataset.py", "Corpus.read", Tier.USER),
        ("/home/me/torch/utils/data.py", "load", Tier.USER),
        ("/home/me/pytorch/examples/train.py", "main", Tier.USER),
        ("/home/me/pytorch-lab/torch/train.py", "main", Tier.USER),
        ("/home/me/torchlab/src/torchlab/nn/modules.py", "Net.forward", Tier.USER),
        ("/home/me/json/train.py", "main", Tier.USER),
        # frozen programs and archives
        ("train.py", "main", Tier.USER),
        ("model/net.py", "Net.forward", Tier.USER),
        ("torch/_tensor.py", "Tensor.backward", Tier.CORE),
        ("json/encoder.py", "JSONEncoder.encode", Tier.CORE),
        ("threading.py", "Thread.run", Tier.PLUMBING),
        ("/opt/app/python311.zip/json/encoder.py", "JSONEncoder.encode", Tier.CORE),
        ("/usr/lib/python311.zip/json/encoder.py", "JSONEncoder.encode", Tier.CORE),
        ("/home/me/app.pyz/train.py", "main", Tier.USER),
        ("/home/me/.shiv/app_1/site-packages/requests/api.py", "get", Tier.PACKAGE),
        # code that is written by code
        ("<string>", "<module>", Tier.USER),
        ("<string>", "Net.__init__", Tier.USER),
        ("<string>", "__create_fn__.<locals>.__init__", Tier.PLUMBING),
        ("<decorator-gen-12>", "fit", Tier.PLUMBING),
    ],
)
def test_a_file_has_the_tier_of_its_author(file: str, function: str, tier: Tier) -> None:
    assert tier_of(CodeLine(file, function, 1)) is tier


def test_a_checkout_of_pytorch_is_known_by_what_the_receiver_says() -> None:
    """The names of its folders say nothing."""
    for path, function, tier in (
        ("torch/distributions/normal.py", "Normal.rsample", Tier.CORE),
        ("torch/nn/modules/module.py", "Module._call_impl", Tier.PLUMBING),
        ("torch/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", Tier.PLUMBING),
        ("", "Net.forward", Tier.USER),
    ):
        line = CodeLine(f"/home/me/src/{path or 'torch/nn/net.py'}", function, 7, path)
        assert tier_of(line) is tier
        assert line_text(line) == f"{path or 'nn/net.py'}:7 {function}"


def test_the_deepest_frame_of_a_package_is_shown_below_the_users_deepest_line() -> None:
    inner = CodeLine(f"{STANDARD}/re/__init__.py", "findall", 200)
    middle = CodeLine(f"{PACKAGES}/transformers/trainer.py", "Trainer.step", 7)
    place = place_of((inner, CALLS, middle, TOKENIZE, LOOP, MAIN))
    assert place is not None
    assert (place.line, place.call) == (TOKENIZE, CALLS)


def test_the_first_frame_of_pytorch_below_the_users_line_is_shown_if_no_package_is_between() -> None:
    engine = CodeLine(f"{PACKAGES}/torch/autograd/graph.py", "_engine_run_backward", 825)
    place = place_of((engine, BACKWARD, LOOP, MAIN))
    assert place is not None
    assert (place.line, place.call) == (LOOP, BACKWARD)


def test_wrappers_are_no_call() -> None:
    forward = line(12, "Net.forward", "/home/me/run/net.py")
    place = place_of((WRAPPER, forward, WRAPPER, LOOP, MAIN))
    assert place is not None
    assert (place.line, place.call) == (forward, None)


def test_a_stack_without_a_line_of_the_user_shows_the_deepest_one_of_a_package() -> None:
    place = place_of((BACKWARD, CALLS))
    assert place is not None
    assert (place.line, place.call, place.is_user) == (CALLS, BACKWARD, False)
    assert place_of((WRAPPER,)) is None
    assert place_of(()) is None


def test_a_forked_worker_has_only_the_frames_that_it_has_called_itself() -> None:
    inner, makes_batch = of_worker((TOKENIZE, FETCH, WORKER_LOOP, LOOP, MAIN))
    assert (list(inner), makes_batch) == ([TOKENIZE, FETCH], True)
    inner, makes_batch = of_worker((QUEUE, WORKER_LOOP, LOOP, MAIN))
    assert (list(inner), makes_batch) == ([QUEUE], False)


def test_a_wait_in_the_standard_library_is_one_for_a_python_thread() -> None:
    assert waits_for_python((CONDITION, QUEUE, LOOP))
    assert not waits_for_python((LOOP, MAIN))
    assert not waits_for_python(())


def test_paths_are_short_within_the_folder_of_the_program() -> None:
    stacks = [(TOKENIZE, LOOP, MAIN), (BACKWARD, LOOP, MAIN), (line(3, "<module>", "/tmp/x/y.py"),), (CALLS,)]
    folder = folder_of(stacks)
    assert folder == FOLDER
    assert line_text(LOOP, folder) == "train.py:60 main"
    assert line_text(TOKENIZE, folder) == "data/text.py:42 tokenize"
    assert line_text(TOKENIZE) == "data/text.py:42 tokenize"
    assert line_text(line(1, file="/srv/a/b/c.py"), folder) == "b/c.py:1 main"
    assert line_text(CALLS, folder) == "transformers/tokenization_utils.py:2877 PreTrainedTokenizer.__call__"
    assert line_text(CodeLine(f"{STANDARD}/json/encoder.py", "encode", 0)) == "json/encoder.py encode"
    assert line_text(line(5, "main.<locals>.collate")) == "run/train.py:5 collate"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("<ipython-input-12-0f1e2d3c4b5a>", "cell In[12]:3 train"),
        ("/tmp/ipython-input-12-1533291583.py", "cell In[12]:3 train"),
        ("/tmp/ipykernel_4711/1533291583.py", "cell 1533291583:3 train"),
        ("/var/folders/x/ipykernel_4711/1533291583.py", "cell 1533291583:3 train"),
        ("<command-3141592>", "cell 3141592:3 train"),
        ("/root/.ipykernel/812/command-3141592-27182818", "cell 3141592:3 train"),
        ("/tmp/marimo_12/__marimo__cell_Hbol_.py", "cell Hbol:3 train"),
        ("/home/me/ipykernel_1/train.py", "ipykernel_1/train.py:3 train"),
    ],
)
def test_a_cell_of_a_notebook_has_a_readable_name(file: str, text: str) -> None:
    assert line_text(CodeLine(file, "train", 3), "/tmp/ipykernel_4711/") == text
    assert tier_of(CodeLine(file, "train", 3)) is Tier.USER


def test_cells_are_no_folder_of_a_program() -> None:
    assert folder_of([(line(3, "<module>", "/tmp/ipykernel_4711/1533291583.py"),)]) == ""


def test_the_parts_of_a_compiled_function_have_its_name() -> None:
    assert short_function("torch_dynamo_resume_in_forward_at_12") == "forward"
    assert short_function("torch_dynamo_resume_in_torch_dynamo_resume_in_step_at_3_at_9") == "step"


def test_a_path_cannot_forge_a_line_of_the_report() -> None:
    text = line_text(CodeLine("/tmp/a\n\x1b[31m/x.py", "f\nTry: this", 3))
    assert text.isprintable()
    assert len(line_text(CodeLine("/" + "x" * 1000, "y" * 1000, 3))) < 250
