"""Draws the screens: pure functions from a live state and the choices of the user to styled lines."""

from otel_zernel_commands.watch.screens.drawing import DrawnScreen as DrawnScreen
from otel_zernel_commands.watch.screens.drawing import draw as draw
from otel_zernel_commands.watch.screens.summary import FeedStatus as FeedStatus
from otel_zernel_commands.watch.screens.watch_view import INTERVALS as INTERVALS
from otel_zernel_commands.watch.screens.watch_view import WatchView as WatchView
