"""Numbers with units, short enough for a column."""


def seconds(value: float | None) -> str:
    """A duration in at most 6 characters: `45.2ms`, `1.23s`, `12m`."""
    if value is None:
        return "-"
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.000_999_5:
        return f"{value * 1e6:.0f}us"
    if size < 0.999_5:
        return f"{_digits(value * 1000)}ms"
    if size < 99.95:
        return f"{_digits(value)}s"
    if size < 5_940:
        return f"{value / 60:.0f}m"
    return f"{value / 3600:.0f}h" if size < 356_400 else f"{min(value / 86_400, 99_999):.0f}d"


def percent(ratio: float | None) -> str:
    """A ratio as `42%`, in at most 4 characters."""
    return "-" if ratio is None else f"{min(max(ratio, 0.0), 9.99) * 100:.0f}%"


def size(value: float | None) -> str:
    """Bytes in at most 5 characters: `61.2G` are GiB."""
    if value is None:
        return "-"
    for unit in ("B", "K", "M", "G", "T"):
        if abs(value) < 999.5:
            return f"{value:.0f}{unit}" if unit == "B" else f"{_digits(value)}{unit}"
        value /= 1024
    return f"{min(value, 9999):.0f}P"


def rate(value: float | None) -> str:
    """Events per second in at most 5 characters."""
    return "-" if value is None else _digits(min(value, 99_999))


def count(value: float | None) -> str:
    """A whole number with separators."""
    return "-" if value is None else f"{value:,.0f}"


def _digits(value: float) -> str:
    """Three significant digits."""
    if abs(value) < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"
