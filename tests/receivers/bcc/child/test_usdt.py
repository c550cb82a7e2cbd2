"""The C code that reads the arguments of static probes."""

from types import SimpleNamespace
from typing import Any

import pytest

from otel_zernel_receivers.bcc.child.usdt import StaticProbe

CONSTANT, OFFSET, IDENTIFIER, BASE, INDEX, SCALE = (1 << bit for bit in range(6))


def argument(valid: int, **fields: Any) -> Any:
    fields = {"signed": True, "size": 4, "base_register_name": b"bx", "index_register_name": b"cx", **fields}
    return SimpleNamespace(valid=valid, **fields)


def text(*locations: tuple[int, Any]) -> str:
    """The reader of the first argument of a probe at these addresses."""
    probe = StaticProbe.__new__(StaticProbe)
    probe._function = "on_probe"
    probe._locations = [
        SimpleNamespace(address=address, num_arguments=1, get_argument=lambda _, one=one: one)
        for address, one in locations
    ]
    return probe._text()


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (argument(CONSTANT, constant=-3), "value = (s32)-3;"),
        (argument(BASE), "value = (s32)ctx->bx;"),
        (argument(BASE, signed=False, size=8), "value = (u64)ctx->bx;"),
        (argument(BASE | OFFSET, deref_offset=-8), "(void *)(ctx->bx + (-8))"),
        (argument(BASE | OFFSET | INDEX | SCALE, deref_offset=4, scale=8), "(void *)(ctx->bx + ctx->cx * 8 + (4))"),
    ],
)
def test_each_form_of_an_argument_is_read(one: Any, code: str) -> None:
    made = text((0x1000, one))
    head = "static __always_inline int _bpf_readarg_on_probe_1(struct pt_regs *ctx, void *dest, size_t len)"
    assert made.startswith(head)
    assert code in made


def test_places_with_different_arguments_are_told_apart_by_their_address_in_a_page() -> None:
    made = text((0x401234, argument(BASE)), (0x402678, argument(CONSTANT, constant=1)))
    assert "if ((PT_REGS_IP(ctx) & 0xfff) == 0x234) { value = (s32)ctx->bx; } else" in made
    assert "if ((PT_REGS_IP(ctx) & 0xfff) == 0x678) { value = (s32)1; }" in made


def test_places_that_share_an_address_in_a_page_but_not_their_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be told apart"):
        text((0x401234, argument(BASE)), (0x402234, argument(CONSTANT, constant=1)))


def test_an_argument_that_is_a_variable_is_refused() -> None:
    with pytest.raises(ValueError, match="use an uprobe"):
        text((0x1000, argument(BASE | OFFSET | IDENTIFIER, deref_offset=0)))
