"""The system calls in which threads wait, by their numbers on this machine.

A test compares them with bpf/registers.bpf.h.
"""

import platform
from typing import Final

_NUMBERS: Final = {
    "x86_64": {
        "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "lstat": 6, "poll": 7, "mmap": 9, "mprotect": 10,
        "munmap": 11, "brk": 12, "ioctl": 16, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "select": 23,
        "msync": 26, "madvise": 28, "nanosleep": 35, "sendfile": 40, "connect": 42, "accept": 43, "sendto": 44,
        "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "clone": 56, "vfork": 58, "wait4": 61, "fcntl": 72, "flock": 73,
        "fsync": 74, "fdatasync": 75, "sync": 162, "futex": 202, "io_getevents": 208, "clock_nanosleep": 230,
        "epoll_wait": 232, "waitid": 247, "openat": 257, "newfstatat": 262, "pselect6": 270, "ppoll": 271,
        "splice": 275, "sync_file_range": 277, "epoll_pwait": 281, "accept4": 288, "preadv": 295, "pwritev": 296,
        "recvmmsg": 299, "syncfs": 306, "sendmmsg": 307, "preadv2": 327, "pwritev2": 328, "statx": 332,
        "io_uring_enter": 426, "clone3": 435, "openat2": 437, "epoll_pwait2": 441, "futex_waitv": 449,
    },
    "aarch64": {
        "io_getevents": 4, "epoll_pwait": 22, "fcntl": 25, "ioctl": 29, "flock": 32, "openat": 56, "close": 57,
        "read": 63, "write": 64, "readv": 65, "writev": 66, "pread64": 67, "pwrite64": 68, "preadv": 69, "pwritev": 70,
        "sendfile": 71, "pselect6": 72, "ppoll": 73, "splice": 76, "newfstatat": 79, "sync": 81, "fsync": 82,
        "fdatasync": 83, "sync_file_range": 84, "waitid": 95, "futex": 98, "nanosleep": 101, "clock_nanosleep": 115,
        "accept": 202, "connect": 203, "sendto": 206, "recvfrom": 207, "sendmsg": 211, "recvmsg": 212, "brk": 214,
        "munmap": 215, "clone": 220, "mmap": 222, "mprotect": 226, "msync": 227, "madvise": 233, "accept4": 242,
        "recvmmsg": 243, "wait4": 260, "syncfs": 267, "sendmmsg": 269, "preadv2": 286, "pwritev2": 287, "statx": 291,
        "io_uring_enter": 426, "clone3": 435, "openat2": 437, "epoll_pwait2": 441, "futex_waitv": 449,
    },
}  # fmt: skip
NUMBERS: Final = _NUMBERS.get(platform.machine(), {})
NAMES: Final = {number: name for name, number in NUMBERS.items()}
