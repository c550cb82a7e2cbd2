"""The terminal: its modes, its keys, and the writing of lines."""

from otel_zernel_commands.watch.terminal.colours import is_coloured as is_coloured
from otel_zernel_commands.watch.terminal.colours import is_dumb as is_dumb
from otel_zernel_commands.watch.terminal.colours import rendered as rendered
from otel_zernel_commands.watch.terminal.colours import styles_for as styles_for
from otel_zernel_commands.watch.terminal.full_screen import FullScreen as FullScreen
from otel_zernel_commands.watch.terminal.keys import KeyReader as KeyReader
from otel_zernel_commands.watch.terminal.writing import LineWriter as LineWriter
