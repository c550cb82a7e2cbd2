"""A screen as an SVG picture, for the documents."""

from html import escape

from otel_zernel_commands.watch.styled import StyledLine, cells

_CELL, _LINE, _EDGE = 8.4, 18, 12
_FONT = 'font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14"'
_INK, _GROUND = "#d4d4d4", "#1e1e1e"
_INKS = {
    "dim": "#8a8a8a",
    "heading": "#4ec9e0",
    "fault": "#e5c07b",
    "trouble": "#f14c4c",
    "data_loading": "#e5c07b",
    "gpu_compute": "#5fd068",
    "nccl_collective": "#d670d6",
    "optimizer_step": "#6aa0ff",
    "unknown": "#8a8a8a",
}
_GROUNDS = {
    "title": (_GROUND, _INK),
    "title_old": (_GROUND, "#e5c07b"),
    "footer": (_GROUND, _INK),
    "selected": (_GROUND, _INK),
    "on_data_loading": ("#000000", "#e5c07b"),
    "on_gpu_compute": ("#000000", "#5fd068"),
    "on_nccl_collective": ("#ffffff", "#a33ea3"),
    "on_optimizer_step": ("#ffffff", "#2f6bd8"),
    "on_unknown": ("#ffffff", "#6a6a6a"),
}
"""By style: the colours of the letters and of the cells."""


def as_svg(lines: list[StyledLine], columns: int) -> str:
    """The picture. Each text has the width of its cells, so that every font fits."""
    width, height = columns * _CELL + 2 * _EDGE, len(lines) * _LINE + 2 * _EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" {_FONT}>',
        "<title>otel-zernel watch</title>",
        f'<rect width="100%" height="100%" rx="6" fill="{_GROUND}"/>',
    ]
    for row, line in enumerate(lines):
        column = 0
        for text, style in line:
            parts += _span(text, style, _EDGE + column * _CELL, _EDGE + row * _LINE)
            column += cells(text)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _span(text: str, style: str, x: float, y: float) -> list[str]:
    ink, ground = _GROUNDS.get(style, (_INKS.get(style, _INK), ""))
    width = cells(text) * _CELL
    found = [f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_LINE}" fill="{ground}"/>'] if ground else []
    if text.strip():
        weight = ' font-weight="bold"' if style in ("bold", "fault", "heading", "trouble") else ""
        found.append(
            f'<text x="{x:.1f}" y="{y + 14}" fill="{ink}"{weight} textLength="{width:.1f}" xml:space="preserve">'
            f"{escape(text)}</text>"
        )
    return found
