"""What NCCL itself says of the ranks of a job that hangs: from version 2.24 on, its RAS subsystem answers on a port.

One answer is about all ranks of the job, also on other hosts. It names ranks that do not answer, and those that have
launched fewer operations than others. It takes some seconds if ranks do not answer.

https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
"""

import re
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from otel_zernel.text import printable

_ADDRESS: Final = "localhost:28028"
_SWITCH, _PLACE = "NCCL_RAS_ENABLE", "NCCL_RAS_ADDR"
_PATIENCE: Final = 15.0
"""s for a whole answer."""
_FOR_RANKS: Final = 5
"""s in which ranks have to answer."""
_LARGEST: Final = 1 << 20
"""Bytes of an answer."""
_MOST, _LONGEST = 8, 400
"""Notes, and characters of each."""
_HEADING: Final = re.compile(r"^(Errors|Warnings)\n=+$", re.MULTILINE)


def nccl_notes(pids: Iterable[int], proc: Path = Path("/proc")) -> tuple[str, ...]:
    """The errors and warnings of NCCL on the job of these processes; empty if none of them can be asked.

    A process without NCCL cannot, nor one in another network namespace.
    """
    for address in dict.fromkeys(_addresses(pids, proc)):
        with suppress(OSError, ValueError):
            return tuple(_notes(_answer(address)))
    return ()


def _addresses(pids: Iterable[int], proc: Path) -> Iterator[str]:
    for pid in pids:
        process = proc / str(pid)
        with suppress(OSError):
            is_near = (process / "ns/net").readlink() == (proc / "self/ns/net").readlink()
            if is_near and b"/libnccl" in (process / "maps").read_bytes():
                variables = (part.partition(b"=") for part in (process / "environ").read_bytes().split(b"\0"))
                names = {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in variables}
                if names.get(_SWITCH) != "0":
                    yield names.get(_PLACE, _ADDRESS)


def _answer(address: str) -> str:
    """The answer of the port. Raises OSError, and ValueError if another program has the port."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + _PATIENCE
    with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0) as connection:
        connection.sendall(b"CLIENT PROTOCOL 2\n")
        content = connection.recv(256)
        if not content.startswith(b"SERVER PROTOCOL"):
            raise ValueError("the server does not speak the protocol of NCCL")
        connection.sendall(b"TIMEOUT %d\nVERBOSE STATUS\n" % _FOR_RANKS)
        while len(content) < _LARGEST:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            part = connection.recv(1 << 16)
            if not part:
                break
            content += part
    return content.decode(errors="replace")


def _notes(answer: str) -> Iterator[str]:
    """A note for each paragraph below the headings. An answer without them is not complete."""
    if not _HEADING.search(answer):
        return
    _, *sections = _HEADING.split(answer)
    paragraphs = [" ".join(text.split()) for section in sections[1::2] for text in section.split("\n\n")]
    texts = [text for text in paragraphs if text]
    if not texts:
        yield "NCCL reports no error (RAS): its ranks answer, and have launched the same number of operations."
    for text in islice(texts, _MOST):
        yield f"NCCL reports (RAS): {printable(text)[:_LONGEST]}"
    if len(texts) > _MOST:
        yield f"NCCL reports {len(texts) - _MOST} more errors (RAS): `ncclras -v` shows them."
