"""Descriptors are described from the texts of /proc, and the file system is not asked."""

from pathlib import Path

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_receivers.ebpf.hangs.descriptors import Descriptors
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder

MOUNTS = r"""
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 21 0:40 / /data rw - nfs4 storage:/data rw,hard
23 21 0:41 / /data/my\040files rw - fuse.rclone https://me:secret@example.com/bucket rw
24 21 0:42 / /work rw - overlay overlay rw
"""
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:7339 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 811 1
   1: 0100007F:9C40 0700000A:7339 01 00000000:00000000 00:00000000 00000000     0        0 812 1
"""
TCP6 = """  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode
   1: 00000000000000000000000001000000:1F90 B80D0120000000000000000001000000:733D 01 0:0 00:0 0 0 0 813 1
   2: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000900000A:733E 01 0:0 00:0 0 0 0 814 1
"""
UNIX = """Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 815 /run/my logger.sock
"""


def descriptors_of(tmp_path: Path, **targets: str) -> Descriptors:
    """Descriptors by number (`_3`), each with the target of its link and, after a blank, the number of its mount."""
    process = tmp_path / "7"
    for folder in ("fd", "fdinfo", "net"):
        (process / folder).mkdir(parents=True)
    (process / "mountinfo").write_text(MOUNTS.lstrip())
    for name, text in ("tcp", TCP), ("tcp6", TCP6), ("unix", UNIX):
        (process / "net" / name).write_text(text)
    for name, text in targets.items():
        target, _, mount = text.partition(" on ")
        (process / "fd" / name[1:]).symlink_to(target)
        (process / "fdinfo" / name[1:]).write_text(f"pos:\t0\nflags:\t02\nmnt_id:\t{mount or 0}\n")
    return Descriptors(ProcessFolder(tmp_path, 7), {})


def test_a_file_has_its_mount(tmp_path: Path) -> None:
    descriptors = descriptors_of(tmp_path, _3="/data/train.bin on 22", _4="/scratch/x on 24", _5="/lost on 99")
    assert descriptors.describe(3, "nfs_wait") == (Activity.FILE, "/data/train.bin (nfs4 of storage:/data)")
    assert descriptors.describe(4, "").text == "/scratch/x (overlay)"
    assert descriptors.describe(5, "").text == "/lost"


def test_a_path_has_the_innermost_mount(tmp_path: Path) -> None:
    descriptors = descriptors_of(tmp_path)
    assert descriptors.describe_path("/data/a").text == "/data/a (nfs4 of storage:/data)"
    assert descriptors.describe_path("/database/a").text == "/database/a (ext4 of /dev/vda)"


def test_no_password_of_a_mount_is_shown(tmp_path: Path) -> None:
    text = descriptors_of(tmp_path).describe_path("/data/my files/a").text
    assert text == "/data/my files/a (fuse.rclone of https://example.com/bucket)"


def test_a_socket_has_its_peer(tmp_path: Path) -> None:
    targets = {f"_{number}": f"socket:[{number}]" for number in range(811, 817)}
    descriptors = descriptors_of(tmp_path, **targets)
    assert [descriptors.describe(number, "").text for number in range(811, 817)] == [
        "connections to 127.0.0.1:29497",
        "a socket of 10.0.0.7:29497",
        "a socket of [2001:db8::1]:29501",
        "a socket of 10.0.0.9:29502",
        "the local socket /run/my logger.sock",
        "a socket",
    ]
    assert descriptors.describe(811, "").activity is Activity.SOCKET


def test_a_terminal_and_an_event_counter_are_no_files(tmp_path: Path) -> None:
    descriptors = descriptors_of(tmp_path, _0="/dev/pts/3 on 21", _4="anon_inode:[eventfd]")
    assert descriptors.describe(0, "wait_woken") == (Activity.UNKNOWN, "/dev/pts/3")
    assert descriptors.describe(4, "") == (Activity.UNKNOWN, "")
    assert descriptors.describe(9, "") == (Activity.UNKNOWN, "")


def test_a_pipe_with_a_name_is_known_by_the_place_of_its_wait(tmp_path: Path) -> None:
    descriptors = descriptors_of(tmp_path, _3="/data/fifo on 22")
    assert descriptors.describe(3, "anon_pipe_read") == (Activity.PIPE, "the pipe /data/fifo")


def test_the_descriptors_of_an_epoll_are_listed(tmp_path: Path) -> None:
    descriptors = descriptors_of(tmp_path, _3="anon_inode:[eventpoll]")
    (tmp_path / "7/fdinfo/3").write_text("pos:\t0\ntfd:        7 events:  19\ntfd:        9 events:  19\n")
    assert descriptors.watched_by(3) == [7, 9]
    assert descriptors.watched_by(4) == []
