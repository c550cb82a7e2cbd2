"""The table of words: complete, distinct, and true on every machine."""

import re
from itertools import pairwise, product

import pytest

from otel_zernel_libraries.training.causes import JOB_VERDICTS, VERDICTS, CauseName
from otel_zernel_libraries.training.ledger import Activity, Position
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.verdicts import PHASE_OF
from otel_zernel_libraries.training.words import (
    PHASE_WORDS,
    VERDICT_WORDS,
    cause_sentence,
    detail_name,
    mark_names,
    phase_name,
    phases_css,
    throttle_name,
    verdict_words,
)


def test_every_phase_and_every_verdict_has_words() -> None:
    assert tuple(PHASE_WORDS) == PHASES
    assert {*VERDICTS, *JOB_VERDICTS} <= VERDICT_WORDS.keys()
    assert PHASE_OF.keys() <= VERDICT_WORDS.keys()


def test_no_two_phases_look_alike() -> None:
    for column in zip(*PHASE_WORDS.values(), strict=True):
        if column != tuple(words.ink for words in PHASE_WORDS.values()):
            assert len(set(column)) == len(PHASES)
    assert all(len(words.letter) == 1 and len(words.short) <= 7 for words in PHASE_WORDS.values())


def test_no_words_name_a_device_that_a_machine_may_not_have() -> None:
    texts = [text for words in VERDICT_WORDS.values() for text in (words.sentence, *words.advice)]
    texts += [words.name for words in PHASE_WORDS.values()]
    assert not [text for text in texts if "GPU" in text or "CUDA" in text]


def test_sentences_wait_for_numbers_and_advice_is_complete() -> None:
    for words in VERDICT_WORDS.values():
        assert not words.sentence.endswith(".")
        assert all(text.endswith(".") and text.count("`") % 2 == 0 for text in words.advice)
        assert words.advice or not words.is_fault


def test_the_first_advice_fits_every_program_and_every_view() -> None:
    """Views with little room show only this one: the page, and the log of `phases`, which has no pictures."""
    first = {verdict: words.advice[0] for verdict, words in VERDICT_WORDS.items() if words.advice}
    assert not [verdict for verdict, text in first.items() if re.match(r"(?:In|For|If|With) ", text)]
    assert not [verdict for verdict in VERDICTS if "--" in first[verdict] or first[verdict].endswith("time line.")]


def test_every_cause_is_a_sentence_with_any_activity_in_any_position() -> None:
    for cause, activity, position, rank in product(CauseName, (None, *Activity), (None, *Position), (None, 1)):
        sentence = cause_sentence(cause, rank=rank, activity=activity, position=position)
        words = sentence.split(" ")
        assert sentence[0].isupper()
        assert not sentence.endswith((".", " "))
        assert "" not in words
        assert "unknown" not in sentence.replace("in an unknown part of the step", "")
        assert not any(before == after for before, after in pairwise(words)), sentence


@pytest.mark.parametrize(
    ("cause", "activity", "position", "rank", "sentence"),
    [
        ("segment", "lock", "load", None, "The training thread waits for another thread (a lock) while it loads data"),
        ("segment", "unknown", "forward", 2, "Rank 2 loses time in the forward pass"),
        ("workers_slow", "pipe", "load", None, "Training waits for batches from slow DataLoader workers"),
        ("workers_too_few", "socket", "load", None, "Training waits for batches from too few DataLoader workers"),
        (
            *("straggler", "cpu_wait", "load", 1),
            "The other ranks wait for rank 1, which waits for a CPU for longer than they do while it loads data",
        ),
        (
            *("straggler", "unknown", "load", 1),
            "The other ranks wait for rank 1, which needs more time than they do while it loads data",
        ),
        ("device_clocks", None, None, None, "The GPU runs at lower clocks"),
        ("device_shared", None, None, 3, "Another program uses the GPU of rank 3"),
        ("cpu_quota", "throttled", "forward", 0, "A CPU quota stops rank 0"),
    ],
)
def test_causes_have_their_own_subject_and_verb(
    cause: str, activity: str | None, position: str | None, rank: int | None, sentence: str
) -> None:
    assert cause_sentence(cause, rank=rank, activity=activity, position=position) == sentence


def test_a_value_that_has_no_words_is_shown_as_it_is() -> None:
    assert (phase_name("new"), detail_name("new_kind"), throttle_name("new_cause")) == ("new", "new_kind", "new cause")
    assert verdict_words("new_kind").sentence == "New kind"
    assert mark_names(["scopes", "new_mark"]) == "new_mark, scopes"


def test_the_style_has_a_colour_for_each_phase_in_each_theme() -> None:
    style = phases_css()
    for phase, words in PHASE_WORDS.items():
        assert re.findall(rf"--{phase}: (#\w+);", style) == [words.light, words.dark, words.dark]
        assert f".{phase} {{" in style
