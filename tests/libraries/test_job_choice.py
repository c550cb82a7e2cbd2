"""The jobs that a user chooses on a command line."""

import argparse
import os
import subprocess
import sys

import pytest

from otel_zernel.errors import CannotStart
from otel_zernel_libraries.job_choice import JobChoice, add_choice, names_of


def chosen(*words: str) -> JobChoice:
    parser = argparse.ArgumentParser()
    add_choice(parser)
    return JobChoice.of(parser.parse_args(words), "why")


def test_without_options_all_jobs_are_chosen() -> None:
    assert chosen().is_all
    assert chosen().includes({1}, (), ())


@pytest.mark.parametrize("words", [(), ("-p",), ("--pid",)])
def test_a_pid_chooses_the_job_of_a_rank_of_its_launcher_and_of_its_worker(words: tuple[str, ...]) -> None:
    choice = chosen(*words, str(os.getpid()))
    assert choice.includes({os.getpid(), 7}, (), ())
    assert choice.includes({7}, {os.getpid()}, ())
    assert choice.includes({os.getppid()}, (), ())
    assert not choice.includes({7}, {8}, ("train.py",))


def test_a_name_chooses_jobs() -> None:
    choice = chosen("--job", "nightly")
    assert choice.includes({7}, (), names_of({"service.name": "nightly"}))
    assert not choice.includes({7}, (), names_of({"service.name": "daily", "zernel.job.id": "12"}))


def test_a_process_that_has_ended_is_one_sentence() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(CannotStart, match=rf"^process {ended.pid} does not exist; `otel-zernel why` without a pid"):
        chosen(str(ended.pid))
