"""A small layout, and the rows of a file as values."""

from tests.receivers.csv.running import Run

LAYOUT = {"timestamp": "t", "attributes": {"k": "k"}, "metric": "m", "value": "v"}
HEADER = "t,k,m,v\n"

SECOND = 10**9
START = 1_752_871_354


def rows(count: int, first: int = 0) -> str:
    return "".join(f"{START + index},a,x,{index}\n" for index in range(first, first + count))


def values(run: Run) -> list[float]:
    return [value for _, _, value in run.points]
