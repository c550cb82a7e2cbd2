"""A kernel without type information, for want of one that was built so: its BTF is damaged."""

import lzma
import re
from pathlib import Path

_XZ = b"\xfd7zXZ\x00"
_BTF_HEADER = b"\x9f\xeb\x01\x00\x18\x00\x00\x00"  # magic, version, flags and length: struct btf_header, linux/btf.h


def without_types(package: Path, target: Path) -> Path:
    """Writes the kernel of an unpacked package for x86-64 to `target`, decompressed and without the headers of its BTF.

    Xen's way to boot, which qemu takes for an unpacked kernel, is part of Debian's.
    """
    (image,) = (package / "boot").glob("vmlinu*")
    packed = image.read_bytes()
    kernel = bytearray(lzma.LZMADecompressor().decompress(packed[packed.index(_XZ) :]))
    places = [match.start() for match in re.finditer(re.escape(_BTF_HEADER), kernel)]
    if not places:
        raise ValueError(f"{image} has no type information")
    for place in places:
        kernel[place : place + len(_BTF_HEADER)] = bytes(len(_BTF_HEADER))
    target.write_bytes(kernel)
    return target
