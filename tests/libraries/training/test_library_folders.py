"""The folders from which a process imports libraries are found from the files that it has mapped."""

import pytest

from otel_zernel_libraries.training.library_folders import LibraryFolders, is_of_pytorch, is_standard, path_in_library
from otel_zernel_libraries.training.stacks import CodeLine

SITE = "/venv/lib/python3.11/site-packages"
LIBRARY = "torch/lib/libtorch_python.so"
EXTENSION = "torch/_C.cpython-311-x86_64-linux-gnu.so"
NUMPY = "numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so"
CHECKOUT = LibraryFolders.of(["/home/me/src/pytorch/torch/lib/libtorch_python.so", f"{SITE}/{NUMPY}"])
TARGET = LibraryFolders.of([f"/job/libs/{LIBRARY}", f"/job/libs/{EXTENSION}", f"/job/libs/{NUMPY}"])
DEBIAN = LibraryFolders.of(
    ["/usr/lib/x86_64-linux-gnu/libtorch_python.so.2.6", f"/usr/lib/python3/dist-packages/{EXTENSION}"]
)
ROOT = LibraryFolders.of([f"/libs/{LIBRARY}", f"/libs/{NUMPY}"])
FROZEN = LibraryFolders.of([f"/opt/app/_internal/{LIBRARY}", f"/opt/app/_internal/{NUMPY}"])


@pytest.mark.parametrize(
    ("folders", "file", "path"),
    [
        (CHECKOUT, "/home/me/src/pytorch/torch/nn/modules/linear.py", "torch/nn/modules/linear.py"),
        (CHECKOUT, "/home/me/src/pytorch/torch/my_own_change.py", "torch/my_own_change.py"),
        (CHECKOUT, "/data/pytorch/torch/nn/modules/linear.py", "torch/nn/modules/linear.py"),  # a symbolic link
        (CHECKOUT, "/home/me/src/pytorch/train.py", ""),
        (CHECKOUT, "/home/me/src/pytorch/test/torch/train.py", ""),
        (CHECKOUT, "/home/me/torch/nn/modules/linear.py", ""),
        (CHECKOUT, "/home/you/torch/nn/modules/linear.py", ""),
        (CHECKOUT, "/home/me/src/torchlab/torch/optim/adamw.py", ""),
        (CHECKOUT, f"{SITE}/transformers/trainer.py", "transformers/trainer.py"),
        (TARGET, "/job/libs/torch/nn/modules/linear.py", "torch/nn/modules/linear.py"),
        (TARGET, "/job/libs/transformers/trainer.py", "transformers/trainer.py"),
        (TARGET, "/job/train.py", ""),
        (ROOT, "/libs/transformers/trainer.py", "transformers/trainer.py"),
        (ROOT, "/home/me/libs/torch/nn/net.py", "torch/nn/net.py"),  # as of a symbolic link
        (ROOT, "/home/me/libs/net.py", ""),
        (DEBIAN, "/usr/lib/python3/dist-packages/torch/_tensor.py", "torch/_tensor.py"),
        (DEBIAN, "/home/me/torch/_tensor.py", ""),
        (FROZEN, "torch/_tensor.py", "torch/_tensor.py"),
        (FROZEN, "numpy/lib/function.py", "numpy/lib/function.py"),
        (FROZEN, "json/encoder.py", "json/encoder.py"),
        (FROZEN, "train.py", ""),
    ],
)
def test_a_file_of_a_library_has_its_path_there(folders: LibraryFolders, file: str, path: str) -> None:
    assert folders.path_of(file) == path


@pytest.mark.parametrize("folders", [LibraryFolders(), CHECKOUT, TARGET, DEBIAN, ROOT, FROZEN])
@pytest.mark.parametrize(
    ("file", "path"),
    [
        # several environments, and the interpreter behind a symbolic link
        ("/home/me/other-venv/lib/python3.12/site-packages/yaml/reader.py", "yaml/reader.py"),
        ("/opt/conda/lib/python3.11/threading.py", "threading.py"),
        ("/home/me/.pyenv/versions/3.11/lib/python3.11/threading.py", "threading.py"),
        ("/usr/lib64/python3.13t/json/encoder.py", "json/encoder.py"),
        ("/home/me/.local/lib/python3.11/site-packages/torch/_tensor.py", "torch/_tensor.py"),
        # archives
        (
            "/home/me/.pex/installed_wheels/0/requests-2.32-py3-none-any.whl/requests/api.py",
            "requests/api.py",
        ),
        ("/srv/site-packages/six-1.16-py3.11.egg/six.py", "six.py"),
        ("/home/me/.shiv/app_1/site-packages/requests/api.py", "requests/api.py"),
        ("/usr/lib/python311.zip/json/encoder.py", "json/encoder.py"),
        ("/home/me/app.pyz/train.py", ""),
        # the user's own, also in editable mode
        ("/home/me/transformers/src/transformers/trainer.py", ""),
        ("/home/me/lib/python/train.py", ""),
        ("/home/me/lib/python3/train.py", ""),
        ("/home/me/json/encoder.py", ""),
        ("<stdin>", ""),
    ],
)
def test_the_names_of_folders_of_python_decide_in_every_process(folders: LibraryFolders, file: str, path: str) -> None:
    assert folders.path_of(file) == path


def test_a_process_without_pytorch_has_no_other_folders() -> None:
    assert LibraryFolders.of(["/usr/bin/python3.11", f"{SITE}/{NUMPY}"]) == LibraryFolders()


def test_the_receiver_knows_better_than_the_names() -> None:
    file = "/home/me/src/pytorch/torch/_tensor.py"
    assert path_in_library(CodeLine(file, "f", 1)) == ""
    assert is_of_pytorch(CodeLine(file, "f", 1, "torch/_tensor.py"))
    assert not is_of_pytorch(CodeLine(f"{SITE}/torch/_tensor.py", "f", 1, ""))


def test_a_package_may_lie_beside_the_standard_library() -> None:
    assert is_standard("json/encoder.py")
    assert not is_standard("transformers/trainer.py")
