"""Where eBPF does not work, the receiver says why, stays, and tries again."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.loading import Loaded, load
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver
from otel_zernel_receivers.ebpf.tables import Limits
from otel_zernel_receivers.ebpf.unavailable import Unavailable
from otel_zernel_receivers.ebpf.watch import Watch

ROOT = Path(__file__).parents[3]


async def test_trouble_shows_in_health_until_it_is_over(loadable: None, caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    def third_time_lucky(limits: Limits) -> Loaded:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unavailable("eBPF needs a penny")
        return load(limits)

    context = make_context(clock=SystemClock())
    config = EbpfConfig.model_validate({"rescan_interval": "50ms", "interval": "10ms"})
    receiver = EbpfReceiver(config, context, lambda config, context: Watch(config, context, third_time_lucky))
    running = asyncio.create_task(receiver.run(Downstream()))
    await until(lambda: context.health.problems == {"receivers::test": "eBPF needs a penny"})
    await until(lambda: tries == 3 and not context.health.problems)
    assert caplog.text.count("a penny") == 1, "said once, not at every try"
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv (util-linux) is not installed")
@pytest.mark.parametrize(
    ("held", "told"), [("-all", "lacks CAP_BPF and CAP_PERFMON"), ("-all,+bpf", "lacks CAP_PERFMON")]
)
def test_lacking_capabilities_are_named(held: str, told: str) -> None:
    if os.getuid():
        pytest.skip("needs root, to have capabilities that can be taken away")
    code = "from otel_zernel_receivers.ebpf.loading import load; from otel_zernel_receivers.ebpf.tables import Limits"
    command = [
        "setpriv",
        f"--bounding-set={held}",
        f"--inh-caps={held}",
        sys.executable,
        "-c",
        f"{code}; load(Limits())",
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/receivers"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.stderr.splitlines()[-1].endswith(told)
