"""Keys: from the bytes of a terminal to the choices of the user."""

import pytest

from otel_zernel_commands.watch.screens import FeedStatus, WatchView, draw
from otel_zernel_commands.watch.styled import Surface
from otel_zernel_commands.watch.terminal import KeyReader
from tests.commands.watch.made_states import NOW, job_state, rank_id


def pressed(*keys: str, view: WatchView | None = None) -> WatchView:
    view = view or WatchView()
    for key in keys:
        view.press(key, ["a", "b", "c", "d"], 2)
    return view


def order(view: WatchView, ranks: int = 8) -> list[int]:
    """The numbers of the ranks in the order of the table."""
    shown = draw(job_state(ranks), view, FeedStatus("h", now_ms=NOW), Surface(120, 40)).shown
    return [next(number for number in range(ranks) if rank_id(number) == id_) for id_ in shown]


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1bOB\x1b[5~\x1b[6~", ["up", "down", "page up", "page down"]),
        (b"\r\x7f", ["enter", "backspace"]),
        ("ж".encode(), ["ж"]),
        (b"\x1b[1;5Cj", ["j"]),
        (b"\x1b[200~x", ["x"]),
        (b"\xff\xfek", ["k"]),
    ],
)
def test_bytes_are_these_keys(data: bytes, keys: list[str]) -> None:
    assert KeyReader().feed(data) == keys


def test_keys_are_the_same_in_any_pieces() -> None:
    reader = KeyReader()
    data = b"\x1b[A\x1b[6~" + "ж".encode() + b"\x1bOH"
    assert [key for at in range(len(data)) for key in reader.feed(data[at : at + 1])] == [
        "up",
        "page down",
        "ж",
        "home",
    ]


def test_escape_alone_is_a_key_after_a_wait() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == []
    assert reader.is_waiting
    assert reader.flush() == ["escape"]
    assert not reader.is_waiting


def test_q_and_ctrl_c_quit() -> None:
    assert pressed("q").has_quit
    assert pressed("/", "ctrl-c").has_quit


def test_the_first_and_the_second_key_sort() -> None:
    assert order(WatchView()) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert order(pressed("r")) == [7, 6, 5, 4, 3, 2, 1, 0]
    assert order(pressed("s", "s")) == [7, 6, 5, 4, 3, 2, 1, 0]  # by p50, the slowest first
    late = pressed("s", "s", "s", "s")
    assert late.orders[0].key == "late"
    assert order(late) == [3, 2, 5, 1, 4, 7, 0, 6]
    assert order(pressed("S", "R", view=late)) == [3, 2, 5, 7, 1, 4, 6, 0]  # then by phase, reversed


def test_a_filter_takes_every_key_until_enter() -> None:
    view = pressed("/", "q", "s", "backspace", "enter")
    assert (view.filter, view.is_typing, view.has_quit) == ("q", False, False)
    assert pressed("escape", view=view).filter == ""


@pytest.mark.parametrize(
    ("words", "found"),
    [("rank3", [3]), ("input", [3]), ("PID4702", [2]), ("opt llama", [3, 7]), ("node1", []), ("", list(range(8)))],
)
def test_a_filter_finds_ranks_by_all_its_words(words: str, found: list[int]) -> None:
    assert order(WatchView(filter=words)) == found


def test_arrows_and_letters_move_the_choice() -> None:
    assert pressed("down").selected == "b"
    assert pressed("j", "j", "k").selected == "b"
    assert pressed("end", "down").selected == "d"
    assert pressed("page down", "page up").selected == "a"


def test_enter_opens_and_escape_closes_a_rank() -> None:
    assert pressed("enter").page == "rank"
    assert pressed("enter", "escape").page == "table"
    assert pressed("?").page == "help"
    assert pressed("h", "h").page == "table"


def test_the_interval_has_bounds() -> None:
    assert pressed(*"+" * 20).interval == 10.0
    assert pressed(*"-" * 20).interval == 0.25


def test_space_freezes_and_g_changes_the_tables() -> None:
    assert pressed(" ").is_frozen
    assert not pressed(" ", " ").is_frozen
    assert [pressed(*"g" * times).panels for times in range(4)] == ["all", "ranks", "gpus", "all"]
