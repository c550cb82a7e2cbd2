"""Writes the initial file system of a booting kernel: busybox, the modules to mount the host's files, and a script."""

import lzma
import os
import subprocess
from pathlib import Path

MODULES = (
    "virtio",
    "virtio_ring",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "netfs",
    "fscache",
    "9pnet",
    "9pnet_virtio",
    "9p",
)
"""In the order of loading. Some kernels have some of them built in."""

_FOLDERS = ("bin", "proc", "sys", "dev", "root", "modules")

_INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do insmod $module; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose root /root || poweroff -f
mount -t tmpfs run /root/run
for folder in proc sys dev; do mount --move /$folder /root/$folder; done
mkdir -p /root/dev/shm /root/run/results /root/run/home /root/run/tmp
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 results /root/run/results
mount -t tmpfs shm /root/dev/shm
mount -t cgroup2 cgroup /root/sys/fs/cgroup
mount -t tracefs tracefs /root/sys/kernel/tracing
ip link set lo up
date -s @$(cat /root/run/results/now)
exec switch_root /root /bin/sh -c '
    for folder in /sys/devices/system/cpu/cpu[0-9]*; do
        cpu=${folder##*cpu}
        beat="while echo >/run/results/beat.$cpu; do /bin/busybox sleep 2; done"
        /bin/busybox taskset -c $cpu /bin/busybox sh -c "$beat" &
    done
    /bin/sh /run/results/run.sh >/run/results/log 2>&1
    sync
    /bin/busybox poweroff -f
'
"""


def write_initramfs(kernel: Path, busybox: Path, target: Path) -> None:
    """Writes the archive `target` for a kernel, given the folder of its unpacked package."""
    tree = target.with_suffix(".tree")
    for name in _FOLDERS:
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "bin/busybox").write_bytes(busybox.read_bytes())
    (tree / "init").write_text(_INIT)
    for number, module in enumerate(MODULES, 10):
        if content := _module(kernel, module):
            (tree / "modules" / f"{number}-{module}.ko").write_bytes(content)
    for executable in ("init", "bin/busybox"):
        (tree / executable).chmod(0o755)
    names = "\n".join(os.path.relpath(path, tree) for path in sorted(tree.rglob("*")))
    with target.open("wb") as archive:
        subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, input=names.encode(), stdout=archive, check=True
        )


def _module(kernel: Path, name: str) -> bytes | None:
    """The decompressed bytes of a module; None if it is built in."""
    for path in kernel.rglob(f"{name}.ko*"):
        content = path.read_bytes()
        return lzma.decompress(content) if path.suffix == ".xz" else content
    return None
