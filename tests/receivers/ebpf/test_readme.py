"""The README agrees with the code."""

import re
from pathlib import Path

import yaml

from otel_zernel.otlp.points import Descriptor
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.emit import families
from otel_zernel_receivers.ebpf.emit.declared import METRICS
from otel_zernel_receivers.ebpf.kernel.kernel_structs import Loss
from otel_zernel_receivers.ebpf.processes.scanner import Reason

FOLDER = Path(families.__file__).parents[1]
TEXT = (FOLDER / "README.md").read_text("utf-8")


def test_every_metric_is_declared_as_it_is_emitted() -> None:
    emitted = {family for family in vars(families).values() if isinstance(family, Descriptor)}
    declared = {(metric.name, metric.kind, metric.unit) for metric in METRICS.values() if not metric.own}
    assert declared == {(family.name, family.kind, family.unit) for family in emitted}


def test_every_metric_that_the_readme_names_is_declared() -> None:
    described = TEXT.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"^- \*\*`(zernel\.[\w.]+)`", described, re.MULTILINE))
    assert named
    assert named - METRICS.keys() - set().union(*(metric.attributes for metric in METRICS.values())) == set()


def test_the_sample_has_the_defaults() -> None:
    full = yaml.safe_load(FOLDER.joinpath("sample.yaml").read_text("utf-8"))["ebpf"]
    assert set(full) == set(EbpfConfig.model_fields)
    assert EbpfConfig.model_validate(full) == EbpfConfig()


def test_each_configuration_of_the_readme_is_valid() -> None:
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
    for config in [block["ebpf"] for block in blocks if "ebpf" in block]:
        EbpfConfig.model_validate(config)


def test_every_reason_for_lost_data_is_explained() -> None:
    lost = TEXT[TEXT.index("### Lost data") :]
    of_stacks = "unread_stack", "no_frames", "too_many_stacks"
    for reason in ("ring_full", *of_stacks, *(loss.name.lower() for loss in Loss), *Reason):
        assert f"`{reason}`" in lost, reason
