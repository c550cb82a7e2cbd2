"""Faults of the nodes: a killed process, a cut link, a full disk, each for some seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from examples.cluster.chain import Chain
from examples.cluster.nodes import Node

DURATION = 3.0
"""Seconds that a link is cut, or a disk is full."""


class UnknownFault(Exception):
    """This machine cannot make the fault. The message says which ones it can make."""


@dataclass(frozen=True)
class Fault:
    """One fault."""

    kind: str
    """`kill`, `cut` or `fill`."""
    node: str

    def __str__(self) -> str:
        return f"{self.kind} {self.node}"


def all_faults(chain: Chain) -> list[Fault]:
    """Every fault that this machine can make."""
    found = [Fault("kill", node.name) for node in chain.nodes.values() if chain.network.can_cut or not node.saves_every]
    found += [Fault("cut", name) for name in chain.nodes if chain.network.can_cut]
    return found + [Fault("fill", name) for name, node in chain.nodes.items() if node.disk.can_fill]


def chosen(words: Sequence[str], chain: Chain) -> list[Fault]:
    """The faults with these names, such as `kill:broker`; all if there is none. Raises `UnknownFault`."""
    possible = {f"{fault.kind}:{fault.node}": fault for fault in all_faults(chain)}
    if unknown := [word for word in words if word not in possible]:
        hint = "" if chain.network.can_cut else "; others need root"
        raise UnknownFault(f"unknown faults: {' '.join(unknown)}; possible: {' '.join(possible)}{hint}")
    return [possible[word] for word in words] or list(possible.values())


def apply(fault: Fault, chain: Chain) -> None:
    """Makes the fault, and ends it. A killed process is started again after a second.

    A node that confirms before it saves is cut off first, until all that it has confirmed is saved.
    """
    node = chain.nodes[fault.node]
    if fault.kind == "kill" and node.saves_every and chain.network.can_cut:
        _let_save(node, chain)
    begin, end = _actions(fault, chain)
    begin()
    if fault.kind != "kill":
        for _ in chain.wait(DURATION):
            pass
    end()
    node.watch()


def _let_save(node: Node, chain: Chain) -> None:
    chain.network.cut(node.name)
    for _ in chain.wait(2 * node.saves_every + 0.5):
        pass


def _actions(fault: Fault, chain: Chain) -> tuple[Callable[[], None], Callable[[], None]]:
    node = chain.nodes[fault.node]
    if fault.kind == "kill":
        return node.kill, lambda: chain.network.mend(node.name)
    if fault.kind == "cut":
        return (lambda: chain.network.cut(node.name)), (lambda: chain.network.mend(node.name))
    return node.disk.fill, node.disk.empty
