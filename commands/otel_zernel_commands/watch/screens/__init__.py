"""Draws the screens: pure functions from a live state and the choices of the user to styled lines."""

from otel_zernel_commands.watch.screens.drawing import DrawnScreen, draw
from otel_zernel_commands.watch.screens.summary import FeedStatus
from otel_zernel_commands.watch.screens.watch_view import INTERVALS, WatchView

__all__ = ["INTERVALS", "DrawnScreen", "FeedStatus", "WatchView", "draw"]
