"""The marks of a step of a GPT-2 with 12 layers, and their cost.

Needs root and PyTorch, and takes ten seconds. The hits are counted. The cost of a hit is the one that the receiver's
calibration measures on this machine for a function without a return probe, with other work between the hits.
"""

import subprocess
import sys
from contextlib import closing

from benchmarks import BenchmarkRow
from benchmarks.training.watched_training import why_not
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, load
from otel_zernel_receivers.ebpf.tables.tables import Limits
from tests.receivers.ebpf.watching import Watch, attributes_of, numbers, spans_of

STEPS = 20
STEP_S, BAR = 0.03, 0.005
"""The length of a step in seconds, and the share of it that probes may take."""

# The layers of GPT-2, each with few features: the hits depend on the number of layers only.
_JOB = """
import sys, torch
from torch import nn
from torch.nn import functional
torch.set_num_threads(1)
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)
    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).chunk(3, -1)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.down(functional.gelu(self.up(self.after(x))))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(100, 32), nn.Embedding(16, 32)
        self.layers, self.norm = nn.Sequential(*(Layer() for _ in range(12))), nn.LayerNorm(32)
        self.head = nn.Linear(32, 100, bias=False)
    def forward(self, tokens):
        return self.head(self.norm(self.layers(self.tokens(tokens) + self.positions(torch.arange(16)))))
model, tokens = Model(), torch.randint(0, 100, (2, 16))
optimizer = torch.optim.AdamW(model.parameters())
def train(steps):
    for _ in range(steps):
        functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
train(2)
for line in ("ready", "done"):
    print(line, flush=True)
    sys.stdin.readline()
    train(int(sys.argv[1]) if line == "ready" else 0)
"""


def run() -> list[BenchmarkRow]:
    """Both rows."""
    if reason := why_not():
        return [BenchmarkRow("eBPF: marks of a GPT-2 with 12 layers", f"skipped: {reason}")]
    loaded: list[LoadedProbes] = []

    def remembered(limits: Limits) -> LoadedProbes:
        loaded.append(load(limits))
        return loaded[-1]

    config = EbpfConfig(max_overhead=0)
    with closing(Watch(config, make_context(clock=SystemClock()), remembered)) as watch:
        hits, operators = _hits(watch)
    return _rows(hits, operators, loaded[-1].cost.at(hits / STEP_S).entry_ns)


def _hits(watch: Watch) -> tuple[float, float]:
    """Hits of all probes in a step, and those on operators."""
    command = [sys.executable, "-c", _JOB, str(STEPS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as job:
        assert job.stdin
        assert job.stdout
        job.stdout.readline()
        watch.attach()
        print(file=job.stdin)
        job.stdout.readline()
        batch = watch.read()
        job.communicate("\n")
    runs = [one for one in map(attributes_of, spans_of(batch, job.pid)) if one["zernel_interval"] == "operators"]
    operators = sum(int(str(run["zernel_operators_count"])) for run in runs)
    return sum(numbers(batch, "zernel.probe.hits", process_pid=job.pid)) / STEPS, operators / STEPS


def _rows(hits: float, operators: float, entry_ns: float) -> list[BenchmarkRow]:
    share = hits * entry_ns / 1e9 / STEP_S
    return [
        BenchmarkRow("eBPF: marks in a step of a GPT-2 with 12 layers", f"{hits:.0f}, {operators:.0f} of operators"),
        BenchmarkRow(
            f"eBPF: their cost, as a share of a {STEP_S * 1e3:.0f} ms step",
            f"{share:.2%}",
            f"<= {BAR:.1%}",
            share <= BAR,
        ),
    ]
