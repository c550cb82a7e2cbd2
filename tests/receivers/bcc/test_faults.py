"""A child that fails in any way costs one scrape: it is killed, counted, and started again."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel.errors import CannotStart
from otel_zernel_receivers.bcc import BccReceiver
from otel_zernel_receivers.bcc.process import ChildFailed
from tests.receivers.bcc.programs import READY, by_series, values, with_child

ONCE = """
row = [[7], [3]]
def table(rows, over=0): return {"tables": [{"program": "p", "table": "calls", "rows": rows, "over": over}]}
channel.receive(); channel.send(table([row]))
channel.receive()
"""


@contextmanager
def counted(script: str, **options: Any) -> Iterator[tuple[BccReceiver, InMemoryMetricReader]]:
    """A receiver with such a child, and a reader of its metrics about itself."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with closing(with_child(script, provider.get_meter("test"), **options)) as receiver:
        yield receiver, reader
    provider.shutdown()


def restarts(reader: InMemoryMetricReader) -> dict[str, int]:
    data = reader.get_metrics_data()
    metrics = [metric for part in (data.resource_metrics if data else ()) for metric in part.scope_metrics[0].metrics]
    points = [point for metric in metrics if metric.name == "zernel.bcc.restarts" for point in metric.data.data_points]
    return {str((point.attributes or {})["reason"]): int(point.value) for point in points}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("end", "reason", "sentence"),
    [
        ("sys.stderr.write('no more'); sys.exit(3)", "died", "ended with status 3: no more"),
        ("os.kill(os.getpid(), 9)", "died", "ended with status -9"),
        ("time.sleep(600)", "silent", "did not answer within 0.27 s"),
        ("os.write(channel._output, b'\\0\\0\\0\\2{]')", "garbage", "a message that cannot be read"),
        ("os.write(channel._output, b'\\0\\0\\0\\2[]')", "garbage", "it is no object"),
        ("os.write(channel._output, b'\\xff\\xff\\xff\\xff')", "garbage", "it has 4294967295 bytes"),
        ("channel.send({'other': 1})", "garbage", "a message of an unknown form"),
        ("os.write(channel._output, b'\\0\\0'); time.sleep(600)", "silent", "did not answer within 0.27 s"),
    ],
)
def test_a_child_that_fails_is_counted_and_the_next_scrape_has_a_new_one(end: str, reason: str, sentence: str) -> None:
    with counted(READY + ONCE + end, timeout="300ms") as (receiver, reader):
        first = by_series(receiver.scrape())["calls", 7]
        with pytest.raises(ChildFailed, match=sentence.replace(".", r"\.")):
            receiver.scrape()
        assert restarts(reader) == {reason: 1}
        again = by_series(receiver.scrape())["calls", 7]
        assert again.start_time_unix_nano > first.time_unix_nano


def test_a_child_that_failed_is_gone() -> None:
    with counted(f"open('/proc/self/comm').read(); {READY}{ONCE}time.sleep(600)", timeout="300ms") as (receiver, _):
        receiver.scrape()
        child = receiver._session._child
        assert child
        with pytest.raises(ChildFailed):
            receiver.scrape()
        assert not Path(f"/proc/{child.pid}").exists()


@pytest.mark.parametrize("script", ["sys.exit(1)", "channel.receive(); channel.send({})"])
def test_a_first_child_that_fails_is_an_error_of_the_start(script: str) -> None:
    with (
        counted(script) as (receiver, reader),
        pytest.raises(CannotStart, match="test: the BPF programs' process"),
    ):
        receiver.scrape()
    assert restarts(reader) == {}


def test_a_child_that_is_not_ready_in_time_is_an_error_of_the_start() -> None:
    with counted("time.sleep(600)", start_timeout="100ms") as (receiver, _), pytest.raises(CannotStart, match="within"):
        receiver.scrape()


def test_problems_at_a_restart_are_failures_that_are_tried_again(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    problem = '{"problems": [{"kind": "attach", "detail": "no such function", "place": "programs::p::attach::0"}]}'
    script = f"""
if os.path.exists({str(mark)!r}):
    channel.receive(); channel.send({problem}); sys.exit()
open({str(mark)!r}, "w").close()
{READY}{ONCE}"""
    with counted(script) as (receiver, reader):
        receiver.scrape()
        with pytest.raises(ChildFailed):
            receiver.scrape()
        with pytest.raises(ChildFailed, match="receivers::test::programs::p::attach::0: no such function"):
            receiver.scrape()
        assert restarts(reader) == {"died": 1, "refused": 1}


def test_rows_that_the_child_could_not_send_are_counted_as_dropped() -> None:
    with closing(with_child(READY + ONCE + "channel.send(table([row], 5)); channel.receive()")) as receiver:
        receiver.scrape()
        assert values(receiver.scrape()) == {("calls", 7): 3}
        assert receiver.context.drop.counts == {"limit": 5}  # type: ignore[attr-defined]


def test_a_configured_field_that_the_table_does_not_have_is_named() -> None:
    script = READY.replace('["pid"]', '["tgid", "comm"]').replace('[""]', '["calls", "bytes"]')
    with closing(with_child(script)) as receiver, pytest.raises(CannotStart) as error:
        receiver.scrape()
    place = "receivers::test::programs::p::metrics::0"
    assert str(error.value).splitlines() == [
        f"{place}: the key of table calls has no field 'pid'; it has tgid, comm",
        f"{place}: the value of table calls has no field ''; it has calls, bytes",
    ]


def test_an_interpreter_that_does_not_exist_is_named() -> None:
    receiver = with_child("")
    missing = BccReceiver(receiver.config, receiver.context, lambda _: ["/no/python"])
    with pytest.raises(CannotStart, match="cannot use /no/python: No such file or directory"):
        missing.scrape()


def test_a_process_that_ended_keeps_its_last_value_and_then_ends_with_its_entry(tmp_path: Path) -> None:
    """Pids are looked up in the configured procfs. The child deletes what it is told to."""
    script = (
        READY
        + """
rows = [[[7], [3]], [[8], [4]]]
while (request := channel.receive()) is not None:
    gone = [pid for one in request["gone"] for pid in one["values"] if one["field"] == "pid"]
    rows = [row for row in rows if row[0][0] not in gone]
    channel.send({"tables": [{"program": "p", "table": "calls", "rows": rows, "over": 0}]})
"""
    )
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "comm").write_text("kthreadd\n")
    for pid in "78":
        (tmp_path / pid).mkdir()
    with closing(with_child(script, pid_label=True, proc=str(tmp_path))) as receiver:
        assert values(receiver.scrape()) == {("calls", 7): 3, ("calls", 8): 4}
        (tmp_path / "7").rmdir()
        assert values(receiver.scrape()) == {("calls", 7): 3, ("calls", 8): 4}
        assert values(receiver.scrape()) == {("calls", 7): None, ("calls", 8): 4}
        assert values(receiver.scrape()) == {("calls", 8): 4}


def test_in_a_container_no_process_is_taken_for_ended(tmp_path: Path) -> None:
    with closing(
        with_child(READY + ONCE + "channel.send(table([row]))", pid_label=True, proc=str(tmp_path))
    ) as receiver:
        receiver.scrape()
        assert receiver._gone == {}
