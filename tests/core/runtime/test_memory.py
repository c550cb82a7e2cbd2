"""The memory limit is the least one that the kernel enforces on this process."""

from pathlib import Path

import pytest

from otel_zernel.runtime.memory import memory_limit, physical_memory

GIB = 1 << 30
V2 = "41 23 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
V1 = (
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
)


def machine(root: Path, cgroup: str, mountinfo: str, files: dict[str, str]) -> Path:
    """A file system with 8 GiB of memory and these control groups."""
    everything = {
        "proc/meminfo": f"MemTotal:       {8 * GIB // 1024} kB\nMemFree:  12 kB\n",
        "proc/self/cgroup": cgroup,
        "proc/self/mountinfo": "23 1 8:1 / / rw - ext4 /dev/sda rw\n" + mountinfo,
        **{f"sys/fs/cgroup/{path}": text for path, text in files.items()},
    }
    for path, text in everything.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_without_a_limit_it_is_the_physical_memory(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/user.slice\n", V2, {"user.slice/memory.max": "max\n"})
    assert memory_limit(root) == physical_memory(root) == 8 * GIB


@pytest.mark.parametrize("name", ["memory.max", "memory.high"])
def test_the_least_limit_of_the_group_and_of_its_parents_counts(tmp_path: Path, name: str) -> None:
    files = {"pods/memory.max": f"{4 * GIB}\n", f"pods/a/{name}": f"{GIB}\n", "pods/a/b/memory.max": f"{2 * GIB}\n"}
    assert memory_limit(machine(tmp_path, "0::/pods/a/b\n", V2, files)) == GIB


def test_the_limit_of_another_group_does_not_count(tmp_path: Path) -> None:
    files = {"mine/memory.max": f"{2 * GIB}\n", "other/memory.max": f"{GIB}\n"}
    assert memory_limit(machine(tmp_path, "0::/mine\n", V2, files)) == 2 * GIB


def test_version_1_is_read_from_the_memory_hierarchy(tmp_path: Path) -> None:
    files = {"memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/job/memory.limit_in_bytes": f"{GIB}\n"}
    root = machine(tmp_path, "5:cpu:/elsewhere\n4:memory:/job\n0::/\n", V1, files)
    assert memory_limit(root) == GIB


def test_a_container_that_sees_only_its_own_group_reads_it_at_the_mount_point(tmp_path: Path) -> None:
    mounts = V1.replace("0:32 / ", "0:32 /docker/abc ")
    root = machine(tmp_path, "4:memory:/docker/abc\n", mounts, {"memory/memory.limit_in_bytes": f"{GIB}\n"})
    assert memory_limit(root) == GIB


def test_a_group_outside_of_the_visible_ones_is_limited_by_the_visible_root(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/../../other\n", V2, {"memory.max": f"{GIB}\n"})
    assert memory_limit(root) == GIB


def test_a_mount_point_with_a_space_is_found(tmp_path: Path) -> None:
    mounts = V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/my\\040groups ")
    assert memory_limit(machine(tmp_path, "0::/\n", mounts, {"my groups/memory.max": f"{GIB}\n"})) == GIB


def test_a_limit_above_the_physical_memory_has_no_effect(tmp_path: Path) -> None:
    assert memory_limit(machine(tmp_path, "0::/\n", V2, {"memory.max": f"{100 * GIB}\n"})) == 8 * GIB


@pytest.mark.parametrize("garbage", ["", "::", "x", "4:memory", "-1", "1e9", "\xff"])
def test_unreadable_files_are_no_limit(tmp_path: Path, garbage: str) -> None:
    assert memory_limit(tmp_path) is None
    root = machine(tmp_path, garbage + "\n", V2 + garbage + "\n", {"memory.max": garbage})
    assert memory_limit(root) == 8 * GIB


def test_this_machine_has_a_limit() -> None:
    limit, physical = memory_limit(), physical_memory()
    assert limit
    assert physical
    assert limit <= physical
