"""Whether a process sees those of the whole machine."""

import argparse
import os
from pathlib import Path

import pytest

from otel_zernel.errors import CannotStart
from otel_zernel_libraries import job_choice
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.pid_namespace import unseen_processes


def test_a_container_sees_only_its_own_processes(tmp_path: Path) -> None:
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").touch()
    sentence = unseen_processes(tmp_path)
    assert sentence.startswith("Only the processes of this PID namespace are seen")
    assert "--pid=host" in sentence
    assert "hostPID: true" in sentence


def test_a_system_without_namespaces_says_nothing(tmp_path: Path) -> None:
    assert not unseen_processes(tmp_path)


def test_a_pid_that_is_not_seen_may_be_one_of_another_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_choice, "unseen_processes", lambda: "Only some processes are seen.")
    options = argparse.Namespace(pid=2**22 + os.getpid(), chosen_pid=None, job=None)
    with pytest.raises(CannotStart, match=r"does not exist; .* watches all jobs. Only some processes are seen\.$"):
        JobChoice.of(options, "why")
