"""A slow part of a training program: the verdict names it."""

from itertools import product

import pytest

from tests.frameworks.programs import PROGRAMS, SCORED
from tests.frameworks.running import require_frameworks, run, without
from tests.frameworks.scoring import found_in, job_in
from tests.receivers.ebpf.watching import require_ebpf
from tests.waiting import measured

VERDICTS = {"loader": "input_bound", "optimizer": "optimizer_bound", "forward": "host_bound"}
"""The verdict for each slow part of the steps. A slow forward pass runs Python of the program."""
HOST_BOUND = {"policy gradient", "stable-baselines3", "GAN, no loader", "torch.compile, no loader"}
"""Programs whose batches, or environments, are Python code in the loop: nothing shows that it loads data."""
ALIKE = {"torchrun, 4 ranks", "queue, accumulation 4", "generation"}
"""Programs that are those of others, or do not train."""
EXCEPT = {
    "torch.func": "optimizer",  # the weights are updated by hand, without a call that PyTorch has a scope for
    "stable-baselines3": "forward",  # it computes in `evaluate_actions`, which no hook delays
    "torch.compile, no loader": "forward",  # the pass that compiles waits in the first of few steps
    "truncated BPTT": "loader",  # code that lasts long before a pass of few operators looks like a compiled pass
}
"""Parts that cannot be delayed alone, or that look like another."""
SHORT = {("queue", "loader"), ("Lightning", "optimizer"), ("nanoGPT", "forward"), ("policy gradient", "loader")}
"""The cases of every run of the tests. The programs in `positions` have no part that can be delayed."""
CASES = [
    pytest.param(name, slow, marks=[] if (name, slow) in SHORT else [pytest.mark.soak])
    for name, slow in product(SCORED, VERDICTS)
    if name not in ALIKE and EXCEPT.get(name) != slow and not PROGRAMS[name].job.startswith("positions:")
]
LATE_RANK = 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "slow"), CASES)
def test_the_verdict_names_the_slow_part(name: str, slow: str) -> None:
    require_ebpf()
    require_frameworks()
    program = PROGRAMS[name]
    verdict = "host_bound" if slow == "loader" and name in HOST_BOUND else VERDICTS[slow]
    expected = [verdict] * program.ranks
    assert measured(lambda: verdicts(name, slow), lambda found: found == expected) == expected


def verdicts(name: str, slow: str) -> list[str]:
    """The verdict of each rank of a run."""
    batches, truths = run(name, slow)
    found = found_in([*without(batches, PROGRAMS[name].without)])
    return [found[truth["pid"]].verdict for truth in truths]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["DDP", pytest.param("FSDP2", marks=pytest.mark.soak)])
def test_the_verdict_of_the_job_names_the_slow_rank(name: str) -> None:
    require_ebpf()
    require_frameworks()
    expected = "straggler", LATE_RANK
    assert measured(lambda: verdict_of_job(name), lambda found: found == expected) == expected


def verdict_of_job(name: str) -> tuple[str, int]:
    """The verdict, and the rank that is latest."""
    job = job_in(run(name, "rank")[0])
    return job.verdict, max(job.lateness, key=job.lateness.__getitem__)
