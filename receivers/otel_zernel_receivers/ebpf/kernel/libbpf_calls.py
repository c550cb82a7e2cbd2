"""The functions of libbpf.so.1, the messages that it logs, and bpf(2) for commands that libbpf does not offer."""

import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from otel_zernel_receivers.ebpf.kernel.system_calls import BPF_NUMBERS

_LIBBPF_WARN = 0  # enum libbpf_print_level; higher levels are informational
_LOG_LINES = 40
_LOG_MESSAGE = 1 << 20  # libbpf passes on a verifier's log in one message
_LOG_LAST = 4000  # characters; the end of the log has the error

_int, _u32, _u64, _size = ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t
_pointer, _string = ctypes.c_void_p, ctypes.c_char_p
_PrintFn = ctypes.CFUNCTYPE(_int, _int, _string, _pointer)  # the last is a va_list, a pointer on both ABIs

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "bpf_object__open_file": (_pointer, [_string, _pointer]),
    "bpf_object__load": (_int, [_pointer]),
    "bpf_object__close": (None, [_pointer]),
    "bpf_object__next_program": (_pointer, [_pointer, _pointer]),
    "bpf_object__next_map": (_pointer, [_pointer, _pointer]),
    "bpf_program__name": (_string, [_pointer]),
    "bpf_program__fd": (_int, [_pointer]),
    "bpf_program__set_autoload": (_int, [_pointer, ctypes.c_bool]),
    "bpf_program__set_expected_attach_type": (_int, [_pointer, _int]),
    "bpf_program__attach": (_pointer, [_pointer]),
    "bpf_program__attach_perf_event": (_pointer, [_pointer, _int]),
    "bpf_program__attach_uprobe_opts": (_pointer, [_pointer, _int, _string, _size, _pointer]),
    "bpf_link__destroy": (_int, [_pointer]),
    "bpf_map__name": (_string, [_pointer]),
    "bpf_map__fd": (_int, [_pointer]),
    "bpf_map__value_size": (_u32, [_pointer]),
    "bpf_map__max_entries": (_u32, [_pointer]),
    "bpf_map__set_max_entries": (_int, [_pointer, _u32]),
    "bpf_map__set_initial_value": (_int, [_pointer, _string, _size]),
    "bpf_map_lookup_elem": (_int, [_int, _string, _string]),
    "bpf_map_update_elem": (_int, [_int, _string, _string, _u64]),
    "bpf_map_delete_elem": (_int, [_int, _string]),
    "bpf_map_lookup_batch": (_int, [_int, _pointer, _pointer, _pointer, _pointer, _pointer, _pointer]),
    "bpf_map_lookup_and_delete_batch": (_int, [_int, _pointer, _pointer, _pointer, _pointer, _pointer, _pointer]),
    "bpf_map_delete_batch": (_int, [_int, _pointer, _pointer, _pointer]),
    "libbpf_version_string": (_string, []),
    "libbpf_set_print": (_pointer, [_PrintFn]),
}


class BpfError(OSError):
    """libbpf or the kernel refused a call.

    It carries errno, the attempt, and the end of libbpf's and the verifier's log.
    """


class LibbpfLibrary:
    """libbpf.so.1 and its latest log messages."""

    def __init__(self) -> None:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._log: list[str] = []
        self._print = _PrintFn(self._on_print)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self.call: Any = library
        library.libbpf_set_print(self._print)

    def _on_print(self, level: int, template: bytes, arguments: int) -> int:
        if level <= _LIBBPF_WARN:
            message = ctypes.create_string_buffer(_LOG_MESSAGE)
            self._libc.vsnprintf(message, _size(_LOG_MESSAGE), _string(template), _pointer(arguments))
            self._log.append(message.value.decode(errors="replace").rstrip()[-_LOG_LAST:])
            del self._log[:-_LOG_LINES]
        return 0

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """Meanwhile all messages are dropped, those of other threads, too."""
        self.call.libbpf_set_print(_PrintFn())
        try:
            yield
        finally:
            self.call.libbpf_set_print(self._print)

    def error(self, tried: str, code: int = 0) -> BpfError:
        """The error of a call that returned `code` (-errno), or 0 if it set errno. Empties the log."""
        number = -code if code < 0 else ctypes.get_errno()
        log, self._log = "\n".join(self._log), []
        return BpfError(number, f"{tried}: {os.strerror(number)}" + (f"\n{log}" if log else ""))

    def check(self, code: int, tried: str) -> int:
        """The result of a call. Raises BpfError if it is negative."""
        if code < 0:
            raise self.error(tried, code)
        return code

    def bpf(self, command: int, attributes: bytes, tried: str) -> int:
        """Calls bpf(2). Raises BpfError."""
        number = BPF_NUMBERS[os.uname().machine]
        buffer = ctypes.create_string_buffer(attributes, len(attributes))
        answer: int = self._libc.syscall(number, command, buffer, len(attributes))
        if answer < 0:  # always -1, unlike the results of libbpf's functions
            raise self.error(tried)
        return answer


@functools.cache
def libbpf() -> LibbpfLibrary:
    """The library, loaded once. Raises OSError if it is not installed, AttributeError if it is too old."""
    return LibbpfLibrary()


def missing() -> str | None:
    """A sentence that says what to install, if libbpf cannot be loaded; else None."""
    try:
        libbpf()
    except (OSError, AttributeError) as error:
        return (
            f"libbpf 1.x cannot be loaded ({error}): on Debian 12, Ubuntu 24.04 and newer run apt-get install libbpf1; "
            "on Ubuntu 22.04, which has libbpf 0.5, install the package libbpf1 of Debian 12, or run the collector in "
            "a container with Debian 12; on other distributions install libbpf"
        )
    return None


def version() -> str:
    """The version of libbpf, as in `v1.1`. Call it only if nothing is `missing`."""
    return str(libbpf().call.libbpf_version_string().decode())
