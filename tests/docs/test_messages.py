"""An error or warning of a collector says what to do, or docs/messages.csv has advice on it."""

import ast
from pathlib import Path

import pytest

from docs import messages as page
from docs.message_texts import Key, SourceFile, messages


@pytest.fixture(scope="module")
def in_source() -> dict[Key, str]:
    return page.messages()


def found(source: str, path: str = "receivers/otel_zernel_receivers/csv/receiver.py") -> dict[str, str]:
    """The messages of one file, and the places where a user reads them."""
    return {text: place for (_, text), place in messages([SourceFile(Path(path), ast.parse(source))]).items()}


def test_every_message_in_the_code_says_what_to_do_or_has_advice(in_source: dict[Key, str]) -> None:
    known = page.advice()
    assert [key for key in in_source if not known.get(key)] == [], "run `make docs` and fill in docs/messages.csv"


def test_every_entry_is_a_message_in_the_code(in_source: dict[Key, str]) -> None:
    assert sorted(page.advice().keys() - in_source.keys()) == [], "run `make docs`"


def test_a_log_call_is_a_message_with_gaps_for_its_values() -> None:
    assert found('self.context.logger.warning("took %.1f s: %s", took, error)') == {"took … s: …": "warning"}
    assert found('logger.info("all is well")') == {}


def test_a_raised_sentence_is_found_through_a_name_a_choice_and_a_function() -> None:
    source = """
class Unavailable(Exception): pass
class CannotStart(Exception): pass

_ADVICE = {"a": "mount the folder", "b": "run as root"}

def cause(code):
    return _other(code) or f"error {code}"

def _other(code):
    return _ADVICE.get(code)

def start(code, port):
    sentence = f"port {port} is taken" if port else "no port is free"
    if code:
        raise Unavailable(cause(code))
    raise CannotStart(sentence)
"""
    assert found(source) == {
        "mount the folder": "disabled",
        "run as root": "disabled",
        "error …": "disabled",
        "port … is taken": "start",
        "no port is free": "start",
    }


def test_a_function_that_hands_a_message_on_has_those_of_its_callers() -> None:
    source = """
class Problem:
    path: str
    message: str

class Check:
    def add(self, path, message):
        self.problems.append(Problem(path, message))

    def check(self, path):
        self.add(path, "must be a list")
"""
    assert found(source) == {"must be a list": "configuration"}


def test_only_findings_that_are_not_ok_are_messages() -> None:
    source = """
class Finding:
    topic: str
    text: str
    ok: bool | None = None

Finding("driver", "version 580", ok=True)
Finding("driver", "is not loaded", ok=False)
Finding("driver", "only a fact")
"""
    assert found(source) == {"is not loaded": "doctor"}


def test_value_errors_are_messages_where_configurations_are_validated() -> None:
    source = 'raise ValueError("must be positive")'
    assert found(source, "receivers/otel_zernel_receivers/csv/config.py") == {"must be positive": "configuration"}
    assert found(source) == {}


def test_a_reworded_message_keeps_its_advice() -> None:
    old: Key = ("receivers/csv", "cannot write to …: …")
    new: Key = ("receivers/csv", "cannot write into …: …")
    assert page.inherited({old: "Free the disk."}, [new]) == {new: "Free the disk."}
