"""Runs a command under a seccomp profile that refuses one system call with EPERM, as a container's profile does.

python seccomp.py NUMBER COMMAND [ARGUMENT ...]
"""

import ctypes
import errno
import os
import struct
import sys

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # of classic BPF, as in linux/bpf_common.h
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM  # linux/seccomp.h
_NUMBER_OF_CALL = 0  # offset in struct seccomp_data


def refuse(number: int) -> None:
    """Refuses the system call in this process and in all processes that it starts. Needs CAP_SYS_ADMIN."""
    instructions = (
        (_LOAD, 0, 0, _NUMBER_OF_CALL),
        (_JUMP_IF_EQUAL, 0, 1, number),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(instructions), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "installing a seccomp filter")


if __name__ == "__main__":
    refuse(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
