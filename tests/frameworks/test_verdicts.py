"""A slow part of a training program: the verdict names it."""

from itertools import product

import pytest

from tests.frameworks.programs import PROGRAMS
from tests.frameworks.running import require_frameworks, run
from tests.frameworks.scoring import found_in, job_in
from tests.receivers.ebpf.watching import require_ebpf

VERDICTS = {"loader": "input_bound", "optimizer": "optimizer_bound", "forward": "compute_bound"}
"""The verdict for each slow part of the steps."""
SLOW_PROGRAMS = ("Lightning", "accelerate", "nanoGPT", "GAN", "Keras 3", "queue", "transformers Trainer")
SHORT = {("queue", "loader"), ("Lightning", "optimizer"), ("nanoGPT", "forward")}
"""The cases of every run of the tests."""
CASES = [
    pytest.param(name, slow, marks=[] if (name, slow) in SHORT else [pytest.mark.soak])
    for name, slow in [*product(SLOW_PROGRAMS, VERDICTS), *product(("LBFGS", "stable-baselines3"), ("optimizer",))]
]
SLOW_ENVIRONMENTS = [pytest.param("policy gradient"), pytest.param("stable-baselines3", marks=pytest.mark.soak)]
LATE_RANK = 1


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("name", "slow"), CASES)
def test_the_verdict_names_the_slow_part(name: str, slow: str) -> None:
    require_ebpf()
    require_frameworks()
    expected = [VERDICTS[slow]] * PROGRAMS[name].ranks
    batches, truths = run(name, slow)
    found = found_in(batches)
    assert [found[truth["pid"]].verdict for truth in truths] == expected


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", SLOW_ENVIRONMENTS)
def test_the_verdict_names_a_slow_environment(name: str) -> None:
    require_ebpf()
    require_frameworks()
    batches, (truth,) = run(name, "loader")
    assert found_in(batches)[truth["pid"]].verdict == "host_bound"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["DDP", pytest.param("FSDP2", marks=pytest.mark.soak)])
def test_the_verdict_of_the_job_names_the_slow_rank(name: str) -> None:
    require_ebpf()
    require_frameworks()
    job = job_in(run(name, "rank")[0])
    assert job.verdict == "straggler"
    assert max(job.lateness, key=job.lateness.__getitem__) == LATE_RANK
