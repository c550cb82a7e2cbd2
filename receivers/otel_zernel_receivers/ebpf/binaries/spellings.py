"""The mangled names of a C++ function in symbol tables, from its qualified name.

    beginnings("c10d::Work::wait")       # (b"_ZN4c10d4Work4waitE", b"_ZNK4c10d4Work4waitE")
    keeps_arguments("_ZL3fooi.cold")     # False

Only the beginning of a mangled name is fixed. The arguments follow, and their mangling depends on the string ABI and on
the types of a release. The rules are those of the Itanium C++ ABI, section 5.1.3 ("Compound types and names").
"""

import re

ANY = ("",)
"""For a function that may have any arguments."""

_CONSTRUCTORS = ("C1", "C2")
"""The constructors of a complete object and of a base object. They often share an address."""
# GCC and LLVM append a suffix to the name of a part or a copy of a function. `.cold` and `.part` are parts without the
# function's entry. `.isra` and `.constprop` are copies with fewer arguments. These three are the whole function.
_SUFFIX = re.compile(r"(\.(lto_priv|localalias|llvm)(\.\d+)?)*")


def beginnings(qualified: str, *, is_local: bool = False) -> tuple[bytes, ...]:
    """The possible mangled names of the function, up to its arguments.

    `is_local` adds the name of a static function in a namespace.
    """
    *scopes, name = qualified.split("::")
    if not scopes:
        return tuple(f"_Z{local}{len(name)}{name}".encode() for local in ("", "L"))
    outside = "".join(f"{len(scope)}{scope}" for scope in scopes)
    if name == scopes[-1]:
        return tuple(f"_ZN{outside}{constructor}E".encode() for constructor in _CONSTRUCTORS)
    names = tuple(f"_ZN{const}{outside}{len(name)}{name}E".encode() for const in ("", "K"))
    return (*names, f"_ZN{outside}L{len(name)}{name}E".encode()) if is_local else names


def keeps_arguments(symbol: str) -> bool:
    """Whether the symbol is the entry of a function with exactly the arguments of its name."""
    return _SUFFIX.fullmatch(symbol, symbol.index(".") if "." in symbol else len(symbol)) is not None
