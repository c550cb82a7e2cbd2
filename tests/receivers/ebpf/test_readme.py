"""The README agrees with the code."""

import re
from pathlib import Path

import yaml

from otel_zernel.otlp.points import Descriptor
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.emit import families
from otel_zernel_receivers.ebpf.kernel.kernel_structs import Loss
from otel_zernel_receivers.ebpf.processes.scanner import Reason

TEXT = (Path(families.__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_table_of_metrics_agrees_with_the_code() -> None:
    documented = set()
    for names, kinds in re.findall(r"^\| (`zernel\.[^|]*) \| ([^|]*) \|", TEXT, re.MULTILINE):
        found, pairs = re.findall("`(.*?)`", names), [kind.split(", ") for kind in kinds.split(" and ")]
        for at, name in enumerate(found):
            data, unit = pairs[0][0], pairs[min(at, len(pairs) - 1)][-1]
            documented.add((name, data, unit))
    emitted = {family for family in vars(families).values() if isinstance(family, Descriptor)}
    assert documented == {(family.name, family.kind, family.unit) for family in emitted}


def test_each_configuration_is_valid_and_the_full_one_has_the_defaults() -> None:
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
    configs = [block["ebpf"] for block in blocks if "ebpf" in block]
    full = max(configs, key=len)
    assert set(full) == set(EbpfConfig.model_fields)
    assert EbpfConfig.model_validate(full) == EbpfConfig()
    for config in configs:
        EbpfConfig.model_validate(config)


def test_every_reason_for_lost_data_is_explained() -> None:
    lost = TEXT[TEXT.index("### Lost data") :]
    of_stacks = "unread_stack", "no_frames", "too_many_stacks"
    for reason in ("ring_full", *of_stacks, *(loss.name.lower() for loss in Loss), *Reason):
        assert f"`{reason}`" in lost, reason
