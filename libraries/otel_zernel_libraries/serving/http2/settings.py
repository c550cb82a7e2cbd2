"""The settings that a client sends. Only the initial window of streams matters to this server. RFC 9113, 6.5."""

from typing import Final

from otel_zernel_libraries.serving.http2.wire import (
    ENABLE_PUSH,
    INITIAL_WINDOW_SIZE,
    LEAST_FRAME,
    MAX_FRAME_SIZE,
    SETTING,
    ConnectionBroken,
    ErrorCode,
)

_VALUES: Final = {ENABLE_PUSH: range(2), MAX_FRAME_SIZE: range(LEAST_FRAME, 2**24)}
"""The valid values of settings (6.5.2). The window's size is checked where it is used; for the others, any is valid."""
_WRONG_SIZE: Final = "SETTINGS has a wrong size"


def check_acknowledgement(payload: bytes) -> None:
    """Raises `ConnectionBroken` if an acknowledgement has a payload."""
    if payload:
        raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, _WRONG_SIZE)


def initial_window(payload: bytes) -> int | None:
    """The initial window of streams, if the frame sets it. Raises `ConnectionBroken` for invalid settings."""
    if len(payload) % SETTING.size:
        raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, _WRONG_SIZE)
    window = None
    for name, value in SETTING.iter_unpack(payload):
        if value not in _VALUES.get(name, (value,)):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"the setting {name} has the value {value}")
        if name == INITIAL_WINDOW_SIZE:
            window = value
    return window
