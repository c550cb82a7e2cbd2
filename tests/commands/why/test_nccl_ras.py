"""What NCCL says of a job that hangs is asked from its RAS port and becomes notes of the report."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from otel_zernel_commands.why.watch.nccl_ras import nccl_notes

SUMMARY = """NCCL version 2.28.9 compiled with CUDA 13.0

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  {state}

Errors
======

{errors}Warnings
========

{warnings}"""
BEHIND = """#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  3 ranks have launched up to operation 17
  1 rank has launched up to operation 16
  Rank 1 -- GPU 1 managed by process 4711 on node 10.0.0.7

"""
GONE = """DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 4712 on node 10.0.0.7 managing GPU 2

"""


@contextmanager
def server(*answers: str) -> Iterator[tuple[int, list[bytes]]]:
    """A server of one connection: its port, and the lines that it gets. It answers each line, and then closes."""
    lines: list[bytes] = []

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, connection.makefile("rwb") as stream:
            for answer in answers:
                lines.append(stream.readline())
                stream.write(answer.encode())
                stream.flush()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], lines
        thread.join(timeout=60)


def proc_with(folder: Path, port: int, library: str = "/venv/nvidia/nccl/lib/libnccl.so.2", switch: str = "1") -> Path:
    for name in ("self", "7"):
        (folder / name / "ns").mkdir(parents=True)
        (folder / name / "ns/net").symlink_to("net:[4026531840]")
    (folder / "7/maps").write_text(f"7f00-7f01 r-xp 00000000 08:01 12 {library}\n")
    (folder / "7/environ").write_text(f"NCCL_RAS_ENABLE={switch}\0NCCL_RAS_ADDR=127.0.0.1:{port}\0")
    return folder


def test_ranks_that_are_behind_or_dead_are_named(tmp_path: Path) -> None:
    text = SUMMARY.format(state="MISMATCH", errors=GONE, warnings=BEHIND)
    with server("SERVER PROTOCOL 2\n", "OK\n", text) as (port, lines):
        first, second = nccl_notes([7], proc_with(tmp_path, port))
    assert lines == [b"CLIENT PROTOCOL 2\n", b"TIMEOUT 5\n", b"VERBOSE STATUS\n"]
    assert first.startswith("NCCL reports (RAS): DEAD 1 job process is considered dead")
    assert second.endswith("operation 16 Rank 1 -- GPU 1 managed by process 4711 on node 10.0.0.7")


def test_a_job_without_errors_says_so(tmp_path: Path) -> None:
    with server("SERVER PROTOCOL 2\n", "OK\n", SUMMARY.format(state="OK", errors="", warnings="")) as (port, _):
        (note,) = nccl_notes([7], proc_with(tmp_path, port))
    assert note.startswith("NCCL reports no error (RAS)")


def test_many_errors_are_cut(tmp_path: Path) -> None:
    text = SUMMARY.format(state="MISMATCH", errors="", warnings=BEHIND * 20)
    with server("SERVER PROTOCOL 2\n", "OK\n", text) as (port, _):
        notes = nccl_notes([7], proc_with(tmp_path, port))
    assert len(notes) == 9
    assert notes[-1] == "NCCL reports 12 more errors (RAS): `ncclras -v` shows them."


def test_an_answer_that_is_cut_gives_no_note(tmp_path: Path) -> None:
    with server("SERVER PROTOCOL 2\n", "OK\n", SUMMARY[:200]) as (port, _):
        assert nccl_notes([7], proc_with(tmp_path, port)) == ()


def test_a_stranger_on_the_port_is_asked_nothing_more(tmp_path: Path) -> None:
    with server("HTTP/1.1 400 Bad Request\r\n\r\n") as (port, lines):
        assert nccl_notes([7], proc_with(tmp_path, port)) == ()
    assert lines == [b"CLIENT PROTOCOL 2\n"]


def test_a_job_that_cannot_be_asked_has_no_notes(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert nccl_notes([7], proc_with(tmp_path / "refused", port)) == ()
    assert nccl_notes([7], proc_with(tmp_path / "gloo", port, library="/usr/lib/libc.so.6")) == ()
    assert nccl_notes([7], proc_with(tmp_path / "off", port, switch="0")) == ()
    elsewhere = proc_with(tmp_path / "elsewhere", port)
    (elsewhere / "7/ns/net").unlink()
    (elsewhere / "7/ns/net").symlink_to("net:[4026532008]")
    assert nccl_notes([7], elsewhere) == ()
    assert nccl_notes([8], elsewhere) == ()
