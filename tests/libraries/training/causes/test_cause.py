"""The causes of a job, and the record in which they travel."""

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.conditions.values import to_any_value
from otel_zernel_libraries.training.causes import CauseName, JobAnswer
from otel_zernel_libraries.training.ledger import Activity, Position
from otel_zernel_libraries.training.span_attributes import MalformedSpan
from otel_zernel_libraries.training.state import TrainingState
from otel_zernel_libraries.training.words import CAUSE_WORDS, POSITION_WORDS, cause_name, cause_sentence
from tests.libraries.training.causes.made_answers import ANSWER, answer_batch

PROCESS: dict[str, AttributeValue] = {
    "process.pid": 7,
    "host.name": "n1",
    "process.creation.time": "2026-01-01T00:00:00Z",
}


def test_an_answer_survives_its_record() -> None:
    assert JobAnswer.from_body(ANSWER.to_body()) == ANSWER


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", "long"),
        ("best", float("nan")),
        ("causes", [{"cause": "unheard_of"}]),
        ("causes", [{}] * 1_000),
        ("looked_at", "segment"),
    ],
)
def test_a_record_of_another_form_is_malformed_and_names_the_field(field: str, value: object) -> None:
    fields = {pair.key: pair.value for pair in ANSWER.to_body().kvlist_value.values}
    fields[field].CopyFrom(to_any_value(value))
    body = AnyValue()
    for key, one in fields.items():
        body.kvlist_value.values.add(key=key, value=one)
    with pytest.raises(MalformedSpan, match=field):
        JobAnswer.from_body(body)


def test_a_state_keeps_the_newest_answer_on_a_process_and_on_a_job() -> None:
    state = TrainingState()
    state.add(answer_batch(ANSWER, {"zernel.job.id": "j"}), 0.0)
    state.add(answer_batch(ANSWER, PROCESS), 0.0)
    (job,), (process,) = state.jobs, state.processes
    assert job.answer == process.answer == ANSWER


def test_a_state_counts_a_malformed_answer_and_keeps_the_one_before() -> None:
    state = TrainingState()
    state.add(answer_batch(ANSWER, PROCESS), 0.0)
    batch = answer_batch(ANSWER, PROCESS)
    batch.edit_logs().resource_logs[0].scope_logs[0].log_records[0].body.string_value = "?"
    state.add(batch, 1.0)
    assert state.take_dropped() == {"malformed_span": 1}
    assert next(iter(state.processes)).answer == ANSWER


def test_every_cause_and_every_position_has_words() -> None:
    assert CAUSE_WORDS.keys() == set(CauseName)
    assert POSITION_WORDS.keys() == set(Position)
    for cause in CauseName:
        sentence = cause_sentence(cause, rank=None, activity=Activity.FILE, position=Position.LOAD)
        assert sentence[0].isupper()
        assert not sentence.endswith(".")
        assert "{" not in sentence
    assert cause_name("new_kind") == "new kind"


def test_the_sentence_of_a_cause_names_its_rank_and_its_place() -> None:
    assert (
        cause_sentence("segment", rank=None, activity="python", position="load")
        == "The training thread runs Python while it loads data"
    )
    assert (
        cause_sentence("straggler", rank=3, activity="cpu_wait", position="forward")
        == "The other ranks wait for rank 3, which waits for a CPU for longer than they do in the forward pass"
    )
