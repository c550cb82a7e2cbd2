"""The difference of two configurations: each instance is added, removed, restarted or kept, for a stated reason."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.component import ComponentConfig, Extension
from otel_zernel.config.telemetry import TelemetrySettings
from otel_zernel.config.yaml12 import read_yaml
from otel_zernel.engine.difference import Definition, Difference, Place, changed_keys, definitions, difference
from otel_zernel.types import Secret
from tests.core.parts import PARTS, Doubler, Keeper, Parts, Sink, SinkConfig, Source, SourceConfig, settings_of

TEXT = """
receivers: {source: {values: [1]}, source/other: }
processors: {doubler: , keeper: }
exporters: {sink: , sink/second: }
service:
  pipelines:
    one: {receivers: [source], processors: [doubler, keeper], exporters: [sink]}
    metrics/two: {receivers: [source, source/other], processors: [doubler], exporters: [sink, sink/second]}
"""

PLACES = [
    *(Place("extensions", f"store/{n}") for n in range(3)),
    *(Place("exporters", f"sink/{n}") for n in range(3)),
    *(Place("processors", "doubler", f"p/{n}") for n in range(2)),
    *(Place("receivers", f"source/{n}") for n in range(2)),
]
CLASSES = {"extensions": Extension, "exporters": Sink, "processors": Doubler, "receivers": Source}
IDS = [place.id for place in PLACES if place.kind == "extensions"]


def definition_of(place: Place, value: int) -> Definition:
    return Definition(CLASSES[place.kind], SourceConfig(values=[value]))


configured = st.dictionaries(st.sampled_from(PLACES), st.integers(0, 1)).map(
    lambda values: {place: definition_of(place, value) for place, value in values.items()}
)
used = st.dictionaries(st.sampled_from(PLACES), st.sets(st.sampled_from(IDS)))
Definitions = Mapping[Place, Definition]
Uses = Mapping[Place, Collection[str]]


@given(configured, configured, used)
def test_each_place_has_exactly_one_fate(running: Definitions, wanted: Definitions, uses: Uses) -> None:
    found = difference(running, wanted, uses)
    fates = [*found.added, *found.removed, *found.restarted, *found.kept]
    assert sorted(fates) == sorted(running.keys() | wanted.keys())


@given(configured, configured, used)
def test_stopping_and_starting_leads_to_the_wanted_instances(
    running: Definitions, wanted: Definitions, uses: Uses
) -> None:
    found = difference(running, wanted, uses)
    after = {place: definition for place, definition in running.items() if place not in found.leaving}
    after |= {place: wanted[place] for place in found.starting}
    assert after == wanted


@given(configured, configured, used)
def test_nothing_that_is_kept_uses_an_extension_that_stops(
    running: Definitions, wanted: Definitions, uses: Uses
) -> None:
    found = difference(running, wanted, uses)
    stopping = {place.id for place in found.leaving if place.kind == "extensions"}
    assert not [place for place in found.kept if stopping.intersection(uses.get(place, ()))]


@given(configured, configured, used)
def test_only_a_change_or_an_extension_that_stops_restarts_an_instance(
    running: Definitions, wanted: Definitions, uses: Uses
) -> None:
    found = difference(running, wanted, uses)
    stopping = {place.id for place in found.leaving if place.kind == "extensions"}
    for place in found.restarted:
        assert running[place] != wanted[place] or stopping.intersection(uses.get(place, ()))


@given(configured, used)
def test_an_equal_configuration_keeps_everything(running: Definitions, uses: Uses) -> None:
    assert difference(running, dict(running), uses) == Difference(kept=tuple(running))


@given(configured, configured)
def test_the_way_back_adds_the_places_that_the_way_there_removes(one: Definitions, other: Definitions) -> None:
    there, back = difference(one, other), difference(other, one)
    assert (set(there.added), set(there.removed)) == (set(back.removed), set(back.added))
    assert there.restarted.keys() == back.restarted.keys()


def test_a_processor_has_an_instance_in_each_of_its_pipelines_and_the_order_is_the_one_of_the_start() -> None:
    assert [str(place) for place in definitions(settings_of(TEXT))] == [
        "exporters::sink",
        "exporters::sink/second",
        "processors::doubler in one",
        "processors::keeper in one",
        "processors::doubler in metrics/two",
        "receivers::source",
        "receivers::source/other",
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("values: [1]", "values: [2]"), {"restarted": "receivers::source (changed: values)"}),
        (
            ("sink: ,", "sink: {timeout: 1s, sending_queue: {queue_size: 7}},"),
            {"restarted": "exporters::sink (changed: timeout, sending_queue::queue_size)"},
        ),
        (("[doubler, keeper]", "[keeper]"), {"removed": "processors::doubler in one"}),
        (("[doubler, keeper]", "[keeper, doubler]"), {}),
        (("[source, source/other]", "[source]"), {"removed": "receivers::source/other"}),
        (("one:", "uno:"), {
            "added": "processors::doubler in uno, processors::keeper in uno",
            "removed": "processors::doubler in one, processors::keeper in one",
        }),
        (("metrics/two", "two"), {
            "added": "processors::doubler in two",
            "removed": "processors::doubler in metrics/two",
            "restarted": "receivers::source/other (other signals)",
        }),
        (("service:", "service:\n  telemetry: {logs: {level: debug}}"), {}),
    ],
)  # fmt: skip
def test_the_fates_of_a_changed_configuration(change: tuple[str, str], expected: dict[str, str]) -> None:
    running, wanted = (definitions(settings_of(text)) for text in (TEXT, TEXT.replace(*change)))
    assert {fate: names for fate, names in difference(running, wanted).lines() if fate != "kept"} == expected


def test_components_that_use_a_changed_extension_restart_also_through_other_extensions() -> None:
    running = {place: definition_of(place, 1) for place in PLACES}
    wanted = running | {PLACES[0]: definition_of(PLACES[0], 2)}
    uses = {PLACES[1]: {IDS[0]}, PLACES[3]: {IDS[1]}, PLACES[4]: {IDS[2]}}
    assert dict(difference(running, wanted, uses).restarted) == {
        PLACES[0]: "changed: values",
        PLACES[1]: f"uses extension {IDS[0]}",
        PLACES[3]: f"uses extension {IDS[1]}",
    }


def test_another_class_of_the_same_type_restarts() -> None:
    place = Place("processors", "keeper", "p")
    running, wanted = ({place: Definition(cls, ComponentConfig())} for cls in (Keeper, Doubler))
    assert dict(difference(running, wanted).restarted) == {place: "another class"}


READERS = "{level: normal, readers: [{pull: {exporter: {prometheus: {port: %d}}}}]}"


@pytest.mark.parametrize(
    ("metrics", "resource", "restarts"),
    [
        (READERS % 1, "{}", False),
        (READERS % 2, "{}", False),
        (READERS % 1, "{a: b}", True),
        ("{level: none}", "{}", True),
        ("{readers: []}", "{}", True),
    ],
)
def test_only_metrics_settings_that_need_another_meter_provider_restart_everything(
    metrics: str, resource: str, restarts: bool
) -> None:
    running, wanted = (
        definitions(
            replace(
                settings_of(TEXT),
                telemetry=TelemetrySettings.model_validate({"metrics": read_yaml(one, "").value, "resource": other}),
            )
        )
        for one, other in ((READERS % 1, {}), (metrics, read_yaml(resource, "").value))
    )
    found = difference(running, wanted)
    assert len(found.restarted) == (len(running) if restarts else 0)
    assert set(found.restarted.values()) <= {"other metrics settings"}


def test_changed_keys_are_named_without_their_values() -> None:
    class Config(ComponentConfig):
        token: Secret
        inner: SinkConfig = SinkConfig()

    model_validate = Config.model_validate({"token": "a"})
    other = Config.model_validate({"token": "b", "inner": {"fails": 3}})
    assert changed_keys(model_validate, other) == ["token", "inner::fails"]
    assert changed_keys(model_validate, model_validate) == []


PARTS_WITH_STORE: Parts = {**PARTS, "extensions": {"store": Extension}}


def test_an_extension_that_is_not_enabled_has_no_instance() -> None:
    text = TEXT.replace("service:", "extensions: {store/a: , store/b: }\nservice:\n  extensions: [store/a]")
    found = definitions(settings_of(text, PARTS_WITH_STORE))
    assert [place.id for place in found if place.kind == "extensions"] == ["store/a"]
