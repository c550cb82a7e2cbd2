"""`why --track` writes a summary into the job's run, by the packages of the job: the real trackers read it back."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from otel_zernel_commands.why.findings import JobFindings
from otel_zernel_commands.why.tracking.sending import sent
from otel_zernel_commands.why.tracking.summary import summary_of
from tests.commands.why.answers import slow_report
from tests.interop.installed import installed_peer

_NOBODY = 65534
READ_EVENTS = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
for tag in events.Tags()["tensors"]:
    print(tag, events.Tensors(tag)[0].tensor_proto.string_val[0].decode())
for tag in events.Tags()["scalars"]:
    print(tag, events.Scalars(tag)[0].value)
"""
START_RUN = "from mlflow import MlflowClient; print(MlflowClient().create_run('0').info.run_id)"
READ_RUN = """
import sys
from mlflow import MlflowClient
data = MlflowClient().get_run(sys.argv[1]).data
print(*(f"{name} {value}" for name, value in {**data.metrics, **data.tags}.items()), sep="\\n")
"""
READ_OFFLINE = """
import struct, sys
from wandb.proto.wandb_internal_pb2 import Record
data, position, text = open(sys.argv[1], "rb").read(), 7, b""
while position + 7 <= len(data):
    _, length, kind = struct.unpack_from("<IHB", data, position)  # as in LevelDB's log: all, first, middle or last
    text += data[position + 7 : position + 7 + length]
    position += 7 + length
    if kind in (1, 4):
        record, text = Record.FromString(text), b""
        print("record", record.WhichOneof("record_type"))
        for item in record.summary.update:
            print("/".join(item.nested_key) or item.key, item.value_json.strip('"'))
"""


def job_of(pid: int) -> JobFindings:
    """The job with two causes, whose first rank is the process."""
    (job,) = slow_report().jobs
    return replace(job, ranks=(replace(job.ranks[0], pid=pid), *job.ranks[1:]))


@contextmanager
def running(
    environment: Mapping[str, str], folder: Path, python: str = sys.executable, user: int | None = None
) -> Iterator[int]:
    """The pid of a process with this environment."""
    program = [python, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        program, env=environment, cwd=folder, user=user, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        process.communicate(b"\n")


@pytest.fixture(scope="module")
def python() -> str:
    """The interpreter of jobs that use the trackers."""
    return str(installed_peer("trackers", "the experiment trackers") / "bin" / "python")


def read(python: str, code: str, argument: str, environment: Mapping[str, str]) -> set[str]:
    command = [python, "-c", code, argument]
    return set(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines())


def lines_of(job: JobFindings) -> set[str]:
    summary = summary_of(job)
    return {f"{name} {value}" for name, value in {**summary.numbers, **summary.texts}.items()}


def test_a_summary_has_causes_and_shares_but_no_lines_of_code() -> None:
    job = job_of(1)
    summary = summary_of(job)
    assert job.answer
    gains = [value for name, value in summary.numbers.items() if name.startswith("zernel/gain_seconds/")]
    assert sorted(gains) == sorted(cause.gain for cause in job.answer.causes)
    shares = [value for name, value in summary.numbers.items() if name.startswith("zernel/share/")]
    assert sum(shares) == pytest.approx(sum(position.share for position in job.times))
    assert summary.numbers["zernel/step_seconds"] == job.steps.mean
    assert set(summary.texts) == {"zernel/verdict", "zernel/why"}
    assert ".py" not in str(summary.numbers)


def test_tensorboard_reads_the_summary_beside_the_events_of_the_job(python: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TENSORBOARD_LOGGING_DIR": "logs"}
    with running(environment, tmp_path, python) as pid:
        job = job_of(pid)
        assert list(sent(job)) == ["Wrote the summary into the run logs of TensorBoard"]
    values = dict(line.split(" ", 1) for line in read(python, READ_EVENTS, str(tmp_path / "logs/zernel"), environment))
    assert values.pop("zernel/why/text_summary", None) or values.pop("zernel/why") == job.diagnosis.sentence
    assert float(values["zernel/step_seconds"]) == pytest.approx(job.steps.mean)
    assert set(summary_of(job).numbers) <= set(values)


def test_mlflow_has_the_summary_in_the_run_of_the_job(python: str, tmp_path: Path) -> None:
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"file://{tmp_path}/runs", "MLFLOW_ALLOW_FILE_STORE": "true"}
    (run,) = read(python, START_RUN, "", environment)
    with running({**environment, "MLFLOW_RUN_ID": run}, tmp_path, python) as pid:
        job = job_of(pid)
        assert list(sent(job)) == [f"Wrote the summary into the run {run} of MLflow"]
    assert lines_of(job) <= read(python, READ_RUN, run, environment)


def test_wandb_has_the_summary_in_an_offline_run_with_the_id_of_the_job(python: str, tmp_path: Path) -> None:
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_RUN_ID": "run1", "WANDB_DIR": str(tmp_path)}
    with running(environment, tmp_path, python) as pid:
        job = job_of(pid)
        assert list(sent(job)) == ["Wrote the summary into the run run1 of Weights & Biases"]
    (file,) = tmp_path.glob("wandb/offline-run-*/run-run1.wandb")
    records = read(python, READ_OFFLINE, str(file), environment)
    assert lines_of(job) <= records
    assert not {"record environment", "record files"} & records, "only the summary is sent"


def test_a_job_without_a_run_or_without_the_package_is_one_sentence(tmp_path: Path) -> None:
    with running({}, tmp_path) as pid:
        assert [line for line in sent(job_of(pid)) if "its environment has none of WANDB_RUN_ID" not in line] == []
    with running({"MLFLOW_RUN_ID": "1"}, tmp_path, "/usr/bin/python3") as pid:
        (sentence,) = sent(job_of(pid))
        assert sentence == "Cannot write into the run 1 of MLflow: ModuleNotFoundError: No module named 'mlflow'"
    with running({"WANDB_RUN_ID": "1", "WANDB_MODE": "disabled"}, tmp_path, "/usr/bin/python3") as pid:
        (sentence,) = sent(job_of(pid))
        assert sentence == "Cannot write into the run 1 of Weights & Biases: WANDB_MODE is disabled"
    (sentence,) = sent(job_of(pid))
    assert f"process PID not found (pid={pid})" in sentence


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root can start a process of another user")
def test_root_writes_as_the_user_of_the_job() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        package = Path(name, "mlflow.py")
        package.write_text("import os; raise OSError(f'user {os.geteuid()}, groups {os.getgroups()}')")
        with running({"MLFLOW_RUN_ID": "1", "PYTHONPATH": name}, Path(name), "/usr/bin/python3", _NOBODY) as pid:
            (sentence,) = sent(job_of(pid))
    assert sentence == f"Cannot write into the run 1 of MLflow: OSError: user {_NOBODY}, groups []"


def test_a_program_that_was_started_has_the_environment_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "/proc/nowhere")
    (sentence,) = sent(job_of(1), [sys.executable, "train.py"])
    assert sentence.startswith("Cannot write into the run /proc/nowhere of TensorBoard: ")
