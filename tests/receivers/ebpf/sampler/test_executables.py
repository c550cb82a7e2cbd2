"""The owner of the code in each mapped file."""

import numpy as np
import pytest

from otel_zernel_receivers.ebpf.kernel.kernel_structs import CODE_RANGES, Code
from otel_zernel_receivers.ebpf.processes.files.mappings import Mapping, Range
from otel_zernel_receivers.ebpf.sampler.executables import code_of, executable_of

SITE = "/opt/venv/lib/python3.11/site-packages"


def mapping_of(path: str, *ranges: tuple[int, int]) -> Mapping:
    return Mapping(path, "00:1", 1, False, tuple(Range(start, end, 0) for start, end in ranges))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{SITE}/torch/lib/libtorch_cpu.so", Code.OPERATOR),
        (f"{SITE}/torch/lib/libgomp-a34b3233.so.1", Code.OPERATOR),
        (f"{SITE}/torch/_C.cpython-311-x86_64-linux-gnu.so", Code.OPERATOR),
        (f"{SITE}/torch.libs/libopenblasp-r0-f658af2e.3.25.so", Code.OPERATOR),
        ("/opt/pytorch/build/lib/libc10.so", Code.OPERATOR),
        (f"{SITE}/nvidia/cublas/lib/libcublasLt.so.12", Code.OPERATOR),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04", Code.OPERATOR),
        ("/opt/conda/lib/libmkl_core.so.2", Code.OPERATOR),
        ("/tmp/torchinductor_root/ab/cabc.so", Code.OPERATOR),
        ("/root/.triton/cache/AB/__triton_launcher.so", Code.OPERATOR),
        ("/usr/lib/libpython3.11.so.1.0", Code.PYTHON),
        ("/opt/conda/bin/python3.12", Code.PYTHON),
        (f"{SITE}/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so", Code.NATIVE),
        (f"{SITE}/numpy.libs/libscipy_openblas64_-32a4b2a6.so", Code.NATIVE),
        (f"{SITE}/tokenizers/tokenizers.abi3.so", Code.NATIVE),
        (f"{SITE}/torchvision/_C.so", Code.NATIVE),
        ("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", Code.NATIVE),
        ("/usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so", Code.PYTHON),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", Code.SHARED),
        ("/lib/x86_64-linux-gnu/libc-2.31.so", Code.SHARED),
        ("/usr/lib/x86_64-linux-gnu/libm.so.6", Code.SHARED),
        ("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", Code.SHARED),
        ("/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30", Code.SHARED),
        (f"{SITE}/scikit_learn.libs/libgomp-d22c30c5.so.1.0.0", Code.SHARED),
        ("/usr/lib/libjemalloc.so.2", Code.SHARED),
    ],
)
def test_the_path_of_a_file_shows_the_owner_of_its_code(path: str, code: Code) -> None:
    assert code_of(mapping_of(path)) == code


def test_the_ranges_of_a_process_are_sorted_by_address() -> None:
    python, torch = (
        mapping_of("/usr/bin/python3.11", (0x9000, 0xB000)),
        mapping_of("/x/torch/lib/a.so", (0x1000, 0x2000)),
    )
    executable = executable_of([python, torch])
    assert executable["count"] == 2
    assert executable["ranges"][:2].tolist() == [(0x1000, 0x1000, Code.OPERATOR), (0x9000, 0x2000, Code.PYTHON)]


def test_neighbours_of_one_owner_are_joined_if_there_are_too_many() -> None:
    many = [mapping_of(f"/lib/x{number}.so", (number << 16, (number << 16) + 4096)) for number in range(CODE_RANGES)]
    python = mapping_of("/usr/bin/python3.11", (CODE_RANGES << 16, (CODE_RANGES << 16) + 4096))
    executable = executable_of([*many, python])
    assert executable["count"] == 2
    assert np.array_equal(executable["ranges"]["code"][:2], [Code.NATIVE, Code.PYTHON])
    assert executable["ranges"]["begin"][1] == CODE_RANGES << 16


def test_the_interpreter_and_pytorch_are_kept_if_there_are_too_many() -> None:
    names = [f"{SITE}/x/{number}.so" if number % 2 else "/usr/lib/libc.so.6" for number in range(2 * CODE_RANGES)]
    many = [mapping_of(name, (at << 16, (at << 16) + 8192)) for at, name in enumerate(names)]
    at = len(many) << 16
    kept = [
        mapping_of("/usr/bin/python3.11", (at, at + 4096)),
        mapping_of("/x/torch/lib/a.so", (at + 8192, at + 12288)),
    ]
    executable = executable_of([*many, *kept])
    assert executable["count"] == CODE_RANGES
    assert executable["ranges"][-2:].tolist() == [(at, 4096, Code.PYTHON), (at + 8192, 4096, Code.OPERATOR)]


def test_a_mapping_of_more_than_4_gib_is_no_error() -> None:
    executable = executable_of([mapping_of("/x/large.so", (1 << 32, 3 << 32))])
    assert executable["ranges"][0].tolist() == (1 << 32, (1 << 32) - 1, Code.NATIVE)
