"""Wrong options, and an output that takes no result: one sentence, and an exit status.

It is 2 for a wrong command line, and 1 for other errors.
"""

import sys
from pathlib import Path

import pytest

from docs.catalogue import ROOT
from otel_zernel.cli import main

RECORDING = str(ROOT / "examples" / "training_spans.jsonl")
STATE = str(ROOT / "tests/exporters/live/golden/gloo_DDP_a_late_rank.json")
FOR_RUNNING_JOBS = "a pid, --for, --track and a program are for running jobs"
WRONG: list[tuple[list[str], int, str]] = [
    (["api"], 2, "one of the arguments --store --config is required"),
    (["api", "--store", "metrics.db"], 1, "extensions::query::url: not the URL of a database"),
    (["api", "--config", "x.yaml", "--endpoint", "localhost:1"], 2, "--endpoint needs --store"),
    (["api", "--config", str(ROOT / "examples" / "replay.yaml")], 1, "the configuration serves no store"),
    (["api", "--store", "sqlite:///tmp/x.db", "--endpoint", "nowhere"], 1, "extensions::api::endpoint"),
    (["live", "--replay", "/nowhere/run.jsonl"], 1, "cannot replay /nowhere/run.jsonl: it is not a file"),
    (["live", "--replay", RECORDING, "--html", "/nowhere/page.html"], 1, "cannot write /nowhere/page.html: "),
    (["live", "--loop"], 2, "--speed and --loop need --replay FILE"),
    (["live", "--replay", RECORDING, "--job", "x"], 2, "leave them out with --replay"),
    (["live", "--replay", RECORDING, "--speed", "0"], 2, '"0" is not a number from 0.01 to 1000'),
    (["mcp", "--http", "8000"], 2, "--http and --token-file need each other"),
    (["mcp", "--http", "8000", "--token-file", "/nowhere"], 1, "cannot read the token file /nowhere"),
    (["mcp", "--http", "8000", "--token-file", "/dev/null"], 1, "needs one word of at least 16 characters"),
    (["mcp", "--replay", "/nowhere"], 1, "cannot replay /nowhere"),
    (["watch", "nothing"], 1, '"nothing" is neither an address nor a file'),
    (["watch", "0"], 2, '"0" is not a pid'),
    (["watch", "run.jsonl", "--job", "x"], 2, "leave out SOURCE"),
    (["watch", "--interval", "5h"], 2, "is not from 100ms to 1m"),
    (["watch", "--speed", "0"], 2, "is not a number from 0.01 to 1000"),
    (["why", "999999999"], 1, "process 999999999 does not exist"),
    (["why", "train.py"], 2, '"train.py" is not a pid; use a number, or --job NAME'),
    (["why", "--for", "soon"], 2, "--for"),
    (["why", "--for", "0s"], 2, "is not from 1s to 24h"),
    (["why", "--html", "/nowhere/why.html"], 1, "cannot write /nowhere/why.html"),
    (["why", "12", "--job", "x"], 2, "not allowed with"),
    (["why", "-p", "12", "--job", "x"], 2, "not allowed with"),
    (["why", "--", "no-such-program", "--lr", "1"], 1, 'cannot start "no-such-program"'),
    (["why", "--"], 2, "needs the command line of a program"),
    (["why", "12", "--", "true"], 2, "leave out the pid and --job"),
    (["why", "--replay", "/nowhere/run.jsonl"], 1, "cannot replay /nowhere/run.jsonl: it is not a file"),
    (["why", "--replay", __file__], 1, "it is no recording of the file exporter: "),
    (["why", "--replay", RECORDING, "--for", "5s"], 2, FOR_RUNNING_JOBS),
    (["why", "--replay", RECORDING, "1"], 2, FOR_RUNNING_JOBS),
    (["why", "--replay", RECORDING, "--", "true"], 2, FOR_RUNNING_JOBS),
]


PRINTING = (
    ["why", "--replay", RECORDING],
    ["why", "--replay", RECORDING, "--json"],
    ["watch", "--once", STATE],
    ["watch", "--json", STATE],
)
"""Commands that print a result."""


def ended(words: list[str]) -> int:
    """The exit status of a command."""
    try:
        return main(words)
    except SystemExit as exited:  # argparse has found the mistake
        return int(exited.code or 0)


@pytest.mark.parametrize(("words", "status", "sentence"), WRONG, ids=[" ".join(words) for words, *_ in WRONG])
def test_a_wrong_option_has_one_sentence(
    words: list[str], status: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(words) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("Error: ")
    assert sentence in printed.err
    assert "Traceback" not in printed.err


LOGS = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"epoch 3"}}]}]}]}\n'
NO_RECORDINGS = {
    "words.txt": b"hello world\n" * 500,
    "empty.jsonl": b"",
    "other.json": b'{"a": 1}\n',
    "page.json": b'{\n "resourceSpans": []\n}\n',
    "logs.jsonl": LOGS * 200,
    "random.bin": bytes(range(256)) * 400,
    "zeros.bin": bytes(100_000),
}


@pytest.mark.parametrize("name", NO_RECORDINGS)
def test_a_file_that_is_no_recording_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    path.write_bytes(NO_RECORDINGS[name])
    assert ended(["live", "--replay", str(path)]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"Error: cannot replay {path}: it is no recording of the file exporter: ")
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_result_that_cannot_be_written_is_one_sentence(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert ended(words) == 1
    sentence = "Error: cannot write the result to standard output: No space left on device\n"
    assert capsys.readouterr().err.endswith(sentence)


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_closed_output_is_one_sentence(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert ended(words) == 1
    sentence = "Error: standard output is closed, and the result needs it: redirect it to a file\n"
    assert capsys.readouterr().err == sentence
