"""The terminal: its modes, its keys, and the writing of lines."""

from otel_zernel_commands.watch.terminal.colours import is_coloured, is_dumb, rendered, styles_for
from otel_zernel_commands.watch.terminal.full_screen import FullScreen
from otel_zernel_commands.watch.terminal.keys import KeyReader
from otel_zernel_commands.watch.terminal.writing import LineWriter

__all__ = ["FullScreen", "KeyReader", "LineWriter", "is_coloured", "is_dumb", "rendered", "styles_for"]
