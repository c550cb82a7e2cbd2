"""Deletes what `import torch` does not load of the packages that PyTorch installs for GPUs. install-torch.sh runs it.

Half of the files of PyTorch's build for CUDA are libraries of NVIDIA's. The tests run it without a GPU.
"""

import shutil
from pathlib import Path

LARGE = 1 << 20
"""Bytes. Smaller files are headers and Python modules."""


def loaded() -> set[Path]:
    """The files that this process has mapped after it imported what training jobs import."""
    import torch.distributed.run
    import torch.nn.parallel
    import torch.utils.data

    (torch.ones(2, 2) @ torch.ones(2, 2)).sum()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return {Path(line[line.index("/") :]).resolve() for line in maps if "/" in line}


def main() -> None:
    import torch

    packages = Path(torch.__file__).parents[1]
    needed = loaded()
    # Only the files of Triton go: pip must still take the requirement of PyTorch for satisfied.
    shutil.rmtree(packages / "triton", ignore_errors=True)
    for path in (packages / "nvidia").rglob("*"):
        if path.is_file() and path.stat().st_size > LARGE and path.resolve() not in needed:
            path.unlink()


if __name__ == "__main__":
    main()
