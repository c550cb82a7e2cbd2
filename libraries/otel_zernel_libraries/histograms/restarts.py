"""Whether the sender of a cumulative series has restarted."""


def begins_again(start: int, former_start: int, former_time: int) -> bool:
    """Whether a point with this start shows that its sender has restarted since the former point.

    A later start before the former point is no restart: some senders compute their start anew for each point. All three
    are in the same unit; an unknown start is 0.
    """
    return start > former_start and start >= former_time
