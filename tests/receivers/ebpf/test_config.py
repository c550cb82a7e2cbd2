"""The configuration of the ebpf receiver."""

from typing import Any

import pytest
from pydantic import ValidationError

from otel_zernel_receivers.ebpf.config import EbpfConfig, StacksConfig


def test_stacks_are_off_by_default() -> None:
    assert EbpfConfig.model_validate({}).stacks is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (False, None),
        (True, StacksConfig()),
        ({}, StacksConfig()),
        ({"rate": 49, "off_cpu": "10ms"}, StacksConfig.model_validate({"rate": 49, "off_cpu": "10ms"})),
    ],
)
def test_stacks_are_switched_or_described(written: Any, read: StacksConfig | None) -> None:
    config = EbpfConfig.model_validate({"stacks": written})
    assert config.stacks == read
    assert EbpfConfig.model_validate(config.model_dump(exclude_unset=True)) == config


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (19, "must be true, false, or {rate: 19, off_cpu: 1ms}"),
        (None, "must be true, false, or {rate: 19, off_cpu: 1ms}"),
        ({"rate": 0}, "greater than or equal to 1"),
        ({"rate": 1000}, "less than or equal to 999"),
        ({"off_cpu": 1}, "a duration needs a unit"),
        ({"off_cpu": "0s"}, "must be greater than 0"),
        ({"off_cpu": "11ms"}, "must be at most 10ms"),
        ({"off_gpu": "1ms"}, "off_gpu"),
    ],
)
def test_other_values_of_stacks_are_refused_with_a_reason(written: Any, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        EbpfConfig.model_validate({"stacks": written})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "ticks"),
    [
        ({"sampler_frequency": 19}, 19),
        ({"sampler_frequency": 0}, 0),
        ({"sampler_frequency": 0, "stacks": True}, 19),
        ({"sampler_frequency": 19, "stacks": {"rate": 99}}, 99),
        ({"sampler_frequency": 99, "stacks": {"rate": 19}}, 99),
    ],
)
def test_the_clock_ticks_as_often_as_samples_or_stacks_need(settings: dict[str, Any], ticks: int) -> None:
    assert EbpfConfig.model_validate(settings).clock_frequency == ticks
