"""The first sentences of a report say what to change and what it saves, and the list ranks all causes."""

import re
from dataclasses import replace

import pytest

from otel_zernel_commands.why.findings import JobFindings
from otel_zernel_commands.why.rendering import report_text
from otel_zernel_commands.why.rendering.causes import about_texts, cause_rows, where_text
from otel_zernel_commands.why.terminal import Terminal
from otel_zernel_libraries.training.causes import Cause, CauseName, Evidence, JobAnswer, lead_of
from otel_zernel_libraries.training.words import CAUSE_WORDS
from tests.commands.why.answers import healthy_report, slow_report
from tests.libraries.training.causes.made_answers import HEALTHY, LATE, SLOW, TOKENIZES


def slow() -> JobFindings:
    return slow_report().jobs[0]


def lead(cause: Cause) -> str:
    return lead_of(JobAnswer(step=0.041, steps=50, causes=(cause,), best=0.030))


def test_the_lead_says_what_to_change_and_what_it_saves() -> None:
    assert slow().diagnosis.sentence == (
        "The training thread runs Python while it loads data: this costs 12.4 ms of each 41.0 ms step. "
        "Without it, a step takes about 28.6 ms (1.4 times as many steps a second)."
    )
    assert slow().diagnosis.advice == TOKENIZES.advice


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (0.002, "(5 % more steps a second)"),
        (0.02, "(2.0 times as many steps a second)"),
        (0.04, "(41 times as many steps a second)"),
        (0.041, "(1,000 times as many steps a second)"),
    ],
)
def test_a_gain_is_a_percentage_or_a_factor(gain: float, words: str) -> None:
    assert lead(replace(TOKENIZES, gain=gain)).endswith(f" {words}.")


def test_the_second_line_says_where() -> None:
    assert where_text(TOKENIZES, SLOW) == "Where: all ranks, data loading."
    assert where_text(TOKENIZES, HEALTHY) == "Where: data loading."
    late = replace(LATE, code=("step() (train.py:31)",))
    assert where_text(late, SLOW) == "Where: rank 1, forward pass, at step() (train.py:31)."


def test_nothing_worth_changing_is_an_answer_with_a_number() -> None:
    diagnosis = healthy_report().jobs[0].diagnosis
    assert (diagnosis.verdict, diagnosis.advice) == ("compute_bound", ())
    assert diagnosis.sentence == (
        "Nothing worth changing was found: a step would at best take 40.2 ms instead of 41.0 ms."
    )
    assert lead_of(replace(HEALTHY, best=HEALTHY.step)) == (
        "Nothing worth changing was found: nothing that was looked for makes the step of 41.0 ms longer."
    )
    text = report_text(healthy_report(), Terminal(120))
    assert "Looked for: checkpoint, own code and waits." in text
    assert "Try:" not in text


def test_the_list_has_gains_with_their_bounds_and_the_advice_of_each_cause() -> None:
    first, second = cause_rows(SLOW)
    assert first[:4] == ("data loading: runs Python", "12.4 ms", "11.9 ms to 12.9 ms", "30 %")
    assert second[:4] == ("straggler, rank 1", "3.40 ms", "2.10 ms to 4.70 ms", "8.3 %")
    assert second.advice == LATE.advice
    assert second.evidence == ("Rank 1 waits for a CPU 4.1 ms longer than the median rank.",)


def test_a_cause_without_a_gain_takes_no_time_of_a_step() -> None:
    evidence = (Evidence("Its memory grows by 1.2 GiB an hour.", 3.6e5, "By/s"),)
    memory = Cause(cause=CauseName.MEMORY_GROWTH, gain=0.0, gain_low=0.0, gain_high=0.0, share=0.0, evidence=evidence)
    (row,) = cause_rows(JobAnswer(step=0.041, steps=50, causes=(memory,), best=0.041))
    assert (row.gain, row.share, row.bounds) == ("", "", "no time of a step")
    assert row.evidence == ("Its memory grows by 1.2 GiB an hour.",)
    assert lead(memory).endswith("grows. Its memory grows by 1.2 GiB an hour.")


def test_missing_ranks_are_said_beside_the_lead() -> None:
    assert list(about_texts(SLOW))[1].startswith("2 of 4 ranks seen: ")
    assert len(list(about_texts(HEALTHY))) == 1
    assert "2 of 4 ranks seen" in "\n".join(report_text(slow_report(), Terminal(80)).splitlines()[:8])


def test_hidden_time_is_called_not_worth_touching() -> None:
    text = re.sub(r"\s+", " ", report_text(slow_report(), Terminal(120)))
    hidden = (
        "after the step: waits for the network (sockets), rank 0: 2.10 ms a step. Without it, a step takes as long."
    )
    assert f"not worth touching - {hidden}" in text


@pytest.mark.parametrize("cause", CauseName)
def test_every_cause_has_words(cause: CauseName) -> None:
    assert cause in CAUSE_WORDS
    assert re.match(r"[A-Z].* step\. Without it, ", lead(replace(LATE, cause=cause)))
