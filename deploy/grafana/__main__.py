"""Writes the files in deploy/grafana/dashboards. `make docs` runs it."""

from pathlib import Path

from deploy.grafana.boards import DASHBOARDS
from deploy.grafana.rendering import text_of

FOLDER = Path(__file__).parent / "dashboards"


def main() -> None:
    """Updates the files in place."""
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.uid}.json").write_text(text_of(dashboard), "utf-8")


if __name__ == "__main__":
    main()
