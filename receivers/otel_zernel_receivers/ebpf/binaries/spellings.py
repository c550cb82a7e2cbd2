"""Spellings of a C++ function in symbol tables, from its qualified name.

    beginnings("c10d::Work::wait")       # (b"_ZN4c10d4Work4waitE", b"_ZNK4c10d4Work4waitE")
    keeps_arguments("_ZL3fooi.cold")     # False

Only the beginning of a name is fixed: the arguments follow, and their spelling changes with the string ABI and with the
types of a release. The mangling is that of the Itanium C++ ABI, section 5.1.3 ("Compound types and names").
"""

import re

ANY = ("",)
"""Arguments of a function that may have any."""

_CONSTRUCTORS = ("C1", "C2")
"""A complete object's constructor, and a part's. They often share an address."""
# GCC and LLVM put a suffix behind the name of a function's part or copy. `.cold` and `.part` are no beginnings of a
# function. `.isra` and `.constprop` have lost arguments. These three are the function itself under a name of its own.
_SUFFIX = re.compile(r"(\.(lto_priv|localalias|llvm)(\.\d+)?)*")


def beginnings(qualified: str) -> tuple[bytes, ...]:
    """The mangled names of the function, up to its arguments."""
    *scopes, name = qualified.split("::")
    if not scopes:
        return tuple(f"_Z{local}{len(name)}{name}".encode() for local in ("", "L"))
    outside = "".join(f"{len(scope)}{scope}" for scope in scopes)
    if name == scopes[-1]:
        return tuple(f"_ZN{outside}{constructor}E".encode() for constructor in _CONSTRUCTORS)
    return tuple(f"_ZN{const}{outside}{len(name)}{name}E".encode() for const in ("", "K"))


def keeps_arguments(symbol: str) -> bool:
    """Whether the symbol is the beginning of a function that takes the arguments its name says."""
    return _SUFFIX.fullmatch(symbol, symbol.index(".") if "." in symbol else len(symbol)) is not None
