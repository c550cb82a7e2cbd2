"""Makes a kernel without type information. No Debian kernel is built without BTF, so the BTF of one is damaged."""

import lzma
import re
from pathlib import Path

_XZ = b"\xfd7zXZ\x00"
_BTF_HEADER = b"\x9f\xeb\x01\x00\x18\x00\x00\x00"  # magic, version, flags and length: struct btf_header, linux/btf.h


def without_types(package: Path, target: Path) -> Path:
    """Writes the x86-64 kernel of an unpacked package to `target`, decompressed and without the headers of its BTF.

    qemu boots a decompressed kernel by Xen's boot protocol (PVH), which Debian's kernels support. Raises ValueError if
    the kernel has no BTF.
    """
    (image,) = (package / "boot").glob("vmlinu*")
    packed = image.read_bytes()
    kernel = bytearray(lzma.LZMADecompressor().decompress(packed[packed.index(_XZ) :]))
    places = [match.start() for match in re.finditer(re.escape(_BTF_HEADER), kernel)]
    if not places:
        raise ValueError(f"{image} has no BTF to damage")
    for place in places:
        kernel[place : place + len(_BTF_HEADER)] = bytes(len(_BTF_HEADER))
    target.write_bytes(kernel)
    return target
