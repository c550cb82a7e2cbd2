"""The lengths of x86-64 instructions, which give the beginning of each one.

A probe replaces the first byte of an instruction. Inside an instruction it would corrupt the program. Only instructions
that compilers use in ordinary functions are supported; the walk ends at any other.

Opcode maps and encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2 and
appendix A.
"""

from collections.abc import Iterator

_PREFIXES = frozenset({0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0xF0, 0xF2, 0xF3})
_OPERAND_SIZE = 0x66
_REX = range(0x40, 0x50)
_REX_W = 8

# One-byte opcodes. Arithmetic (00 to 3f) repeats every 8: four forms with ModRM, then al with imm8, eax with imm32.
_ARITHMETIC = range(0x40)
_MODRM = frozenset({0x63, *range(0x84, 0x90), *range(0xD0, 0xD4), *range(0xD8, 0xE0), 0xFE, 0xFF})
_MODRM_IMM8 = frozenset({0x6B, 0x80, 0x83, 0xC0, 0xC1, 0xC6})
_MODRM_IMM32 = frozenset({0x69, 0x81, 0xC7})
_NO_OPERAND = frozenset(
    {*range(0x50, 0x60), *range(0x90, 0x9A), *range(0xA4, 0xA8), *range(0xAA, 0xB0), 0xC3, 0xC9, 0xCC}
)
_IMM8 = frozenset({0x6A, *range(0x70, 0x80), 0xA8, *range(0xB0, 0xB8), 0xEB})
_IMM32 = frozenset({0x68, 0xA9, 0xE8, 0xE9})
_MOV_IMMEDIATE = range(0xB8, 0xC0)  # imm32, or imm64 with REX.W
_TEST_GROUP = {0xF6: 1, 0xF7: 4}  # it has an immediate only if the middle bits of ModRM are 0 or 1

# Two-byte opcodes: the byte after 0f.
_0F_NO_OPERAND = frozenset({0x05, 0x0B, 0xA2, *range(0xC8, 0xD0)})
_0F_JCC = range(0x80, 0x90)
_0F_MODRM = frozenset(
    {0x0D, *range(0x10, 0x20), *range(0x28, 0x30), *range(0x40, 0x70), *range(0x74, 0x77), *range(0x7C, 0x80)}
    | {*range(0x90, 0xA0), 0xA3, 0xA5, 0xAB, *range(0xAD, 0xB8), *range(0xBB, 0xC2), 0xC3, 0xC7, *range(0xD0, 0x100)}
)
_0F_MODRM_IMM8 = frozenset({0x70, 0x71, 0x72, 0x73, 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6})


def starts(code: bytes) -> Iterator[int]:
    """The offsets at which instructions begin, up to the first one that is not supported or not complete."""
    at = 0
    while at < len(code):
        yield at
        length = _length(code, at)
        if not length or at + length > len(code):
            return
        at += length


def _length(code: bytes, start: int) -> int:
    """The length of the instruction at `start`, bytes; 0 if it is not supported."""
    at, immediate = start, 4
    while _byte(code, at) in _PREFIXES:
        immediate = 2 if code[at] == _OPERAND_SIZE else immediate
        at += 1
    wide = False
    if _byte(code, at) in _REX:
        wide = bool(code[at] & _REX_W)
        at += 1
    if wide:
        immediate = 4
    opcode = _byte(code, at)
    operands = _after_0f(code, at + 2) if opcode == 0x0F else _after(code, at + 1, opcode, immediate, wide=wide)
    return 0 if operands is None else at - start + (2 if opcode == 0x0F else 1) + operands


def _after(code: bytes, at: int, opcode: int, immediate: int, *, wide: bool) -> int | None:
    """The number of bytes after a one-byte opcode; None if it is not supported."""
    if opcode in _ARITHMETIC:
        return (_modrm(code, at), _modrm(code, at), _modrm(code, at), _modrm(code, at), 1, immediate, None, None)[
            opcode & 7
        ]
    if opcode in _TEST_GROUP:
        size = min(_TEST_GROUP[opcode], immediate)
        return _modrm(code, at) + (size if _byte(code, at) >> 3 & 7 < 2 else 0)
    if opcode in _MOV_IMMEDIATE:
        return 8 if wide else immediate
    sizes = ((_NO_OPERAND, 0), (_IMM8, 1), (_IMM32, 4 if opcode in (0xE8, 0xE9) else immediate))
    behind_modrm = ((_MODRM, 0), (_MODRM_IMM8, 1), (_MODRM_IMM32, immediate))
    length = next((size for opcodes, size in sizes if opcode in opcodes), None)
    if length is not None:
        return length
    return next((_modrm(code, at) + size for opcodes, size in behind_modrm if opcode in opcodes), None)


def _after_0f(code: bytes, at: int) -> int | None:
    """The number of bytes after a two-byte opcode; None if it is not supported."""
    opcode = _byte(code, at - 1)
    if opcode in _0F_JCC:
        return 4
    if opcode in _0F_NO_OPERAND:
        return 0
    if opcode in _0F_MODRM:
        return _modrm(code, at)
    return _modrm(code, at) + 1 if opcode in _0F_MODRM_IMM8 else None


def _modrm(code: bytes, at: int) -> int:
    """The length of a ModRM byte with its SIB byte and displacement."""
    modrm = _byte(code, at)
    mode, register = modrm >> 6, modrm & 7
    if mode == 3:
        return 1
    sib = register == 4
    no_base = mode == 0 and (register == 5 or (sib and _byte(code, at + 1) & 7 == 5))
    displacement = 4 if mode == 2 or no_base else mode
    return 1 + sib + displacement


def _byte(code: bytes, at: int) -> int:
    """The byte at an offset. Beyond the end, a byte that begins no supported instruction."""
    return code[at] if at < len(code) else 0x06
