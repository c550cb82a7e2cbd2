"""The step of a job is one trace, with the same ids at every collector."""

from itertools import chain

import pytest

from tests.processors.phases.processing import dropped, feed, last, make, run
from tests.processors.phases.synchronous import Job, by_trace, named, number_of, of_job
from tests.processors.phases.training import attributes_of, metrics_of, spans_of, values_of

ALL = {"traces": {"sample": 1}}


def test_the_steps_of_four_ranks_are_one_trace_with_the_jobs_step_as_its_root() -> None:
    job = Job().train(20)
    spans = spans_of(run(*(job.batch(rank) for rank in range(4)), **ALL))
    traces = of_job(spans)
    assert len(traces) == 20
    for trace in traces.values():
        (root,) = [span for span in trace if not span.parent_span_id]
        ranks = named(trace, "step")
        assert root.name == "job step"
        assert len(ranks) == 4
        assert {span.parent_span_id for span in ranks} == {root.span_id}
        assert {number_of(span) for span in ranks} == {number_of(root)}
        assert root.start_time_unix_nano == min(span.start_time_unix_nano for span in ranks)
        assert root.end_time_unix_nano == max(span.end_time_unix_nano for span in ranks)
        ids = {span.span_id for span in trace}
        assert len(ids) == len(trace)
        assert all(span.parent_span_id in ids for span in trace if span.parent_span_id)


@pytest.mark.parametrize("communicator", ["c0ffee", ""])
def test_four_collectors_that_attach_at_different_moments_make_the_same_traces(communicator: str) -> None:
    """Each collector sees one rank, on a host of its own, and misses a different number of steps."""
    job = Job(communicator=communicator).train(40)
    since = (0, 130, 310, 505)
    collectors = [run(job.batch(rank, since[rank], host_name=f"node{rank}"), **ALL) for rank in range(4)]
    spans = list(chain.from_iterable(map(spans_of, collectors)))
    traces = of_job(spans)
    whole = [trace for trace in traces.values() if len(named(trace, "step")) == 4]
    together = {number_of(named(trace, "step")[0]) or 0: trace for trace in whole}
    assert len(together) >= 20
    assert set(together) == set(range(min(together), 2 * 40, 2)), "none is left out once all collectors are attached"
    for trace in together.values():
        (root,) = named(trace, "job step")
        assert {span.parent_span_id for span in named(trace, "step")} == {root.span_id}


def test_all_ranks_keep_the_same_sampled_steps() -> None:
    job = Job().train(200)
    kept = []
    for rank, since in enumerate((0, 999, 2000, 33)):
        made = run(job.batch(rank, since, host_name=f"node{rank}"), traces={"sample": 8, "slowest": 0})
        numbers = map(number_of, named(spans_of(made), "step"))
        kept.append({number for number in numbers if number is not None})
    last_ones = [{number for number in numbers if number > 150} for numbers in kept]
    assert last_ones[0] == last_ones[1] == last_ones[2] == last_ones[3]
    assert 10 <= len(kept[0]) <= 50, "about one step in eight"


def test_the_slowest_step_of_a_job_is_whole() -> None:
    job = Job(loads={(2, 30): 60.0}).train(50)
    spans = spans_of(run(*(job.batch(rank) for rank in range(4)), interval="60s", window="60s", traces={"sample": 0}))
    (trace,) = of_job(spans).values()
    assert len(named(trace, "step")) == 4


def test_without_numbers_the_steps_of_one_host_are_aligned_by_the_times_of_their_collectives() -> None:
    job = Job(is_counted=False, skew={1: 0.4, 3: 0.9}).train(40)
    since = (0, 130, 310, 505)
    spans = spans_of(run(*(job.batch(rank, since[rank]) for rank in range(4)), **ALL))
    traces = of_job(spans)
    whole = [trace for trace in traces.values() if len(named(trace, "step")) == 4]
    assert len(whole) >= 20
    for trace in whole:
        syncs = [span for span in trace if span.name == "collective"]
        ends = [span.end_time_unix_nano for span in syncs]
        assert max(ends) - min(ends) < 2_000_000, "they left the same collective"
        assert len(named(trace, "job step")) == 1


def test_ranks_that_cannot_be_aligned_have_traces_of_their_own_with_links() -> None:
    """Two hosts: nothing but their clocks would connect them."""
    job = Job(size=2, is_counted=False).train(30)
    spans = spans_of(run(*(job.batch(rank, host_name=f"node{rank}") for rank in range(2)), **ALL))
    steps = named(spans, "step")
    assert not named(spans, "job step")
    by_id = {(span.trace_id, span.span_id): span for span in steps}
    assert len(by_trace(steps)) == len(steps)
    linked = [span for span in steps if span.links]
    assert len(linked) >= 50
    for span in linked:
        for link in span.links:
            other = by_id[link.trace_id, link.span_id]
            assert other.start_time_unix_nano < span.end_time_unix_nano
            assert span.start_time_unix_nano < other.end_time_unix_nano


def test_numbers_that_contradict_the_times_on_a_host_are_not_used() -> None:
    """Processes that use other groups of ranks besides have other counts."""
    job = Job().train(40)
    for span in job.loops[1].spans:
        for attribute in span.attributes:
            if attribute.key == "zernel.collective.sequence":
                attribute.value.int_value += 20
    spans = spans_of(run(*(job.batch(rank) for rank in range(4)), **ALL))
    traces = of_job(spans)
    assert traces
    for trace in traces.values():
        ends = [span.end_time_unix_nano for span in trace if span.name == "collective"]
        assert max(ends) - min(ends) < 2_000_000, "they left the same collective"


def test_a_rank_that_ends_early_holds_no_step_back_for_long() -> None:
    job = Job().train(200)
    job.loops[3].spans = job.loops[3].spans[:250]
    processor = make(**ALL)
    spans = spans_of(feed(processor, job.in_time()))
    traces = of_job(spans)
    assert len(traces) == 200
    assert len(named(spans, "job step")) == 200
    assert {len(named(trace, "step")) for trace in traces.values()} == {3, 4}
    assert not dropped(processor)


def test_the_exemplars_of_a_rank_are_steps_of_traces_that_exist() -> None:
    made = feed(make(traces={"sample": 4}), Job().train(100).in_time())
    exist = {(span.trace_id, span.span_id) for span in spans_of(made)}
    exemplars = [
        (exemplar.trace_id, exemplar.span_id)
        for metric in metrics_of(made, "zernel.step.duration")
        for point in metric.histogram.data_points
        for exemplar in point.exemplars
    ]
    assert exemplars
    assert set(exemplars) <= exist


def test_a_slow_load_of_one_rank_is_the_critical_path_of_the_step_that_waits_for_it() -> None:
    job = Job(loads={(2, 30): 60.0}).train(50)
    made = run(*(job.batch(rank) for rank in range(4)), interval="60s", window="60s", **ALL)
    roots = [attributes_of(span.attributes) for span in named(spans_of(made), "job step")]
    (slow,) = [root for root in roots if float(root["zernel.step.critical_path.data_loading"]) > 0.05]  # type: ignore[arg-type]
    assert slow["zernel.step.critical_path.rank"] == 2
    assert slow["zernel.step.critical_path.phase"] == "data_loading"
    assert slow["zernel.job.step.number"] == 2 * 30 - 1
    assert last(made, "zernel.step.critical_path.time", zernel_rank=2, zernel_phase="data_loading") >= 0.06


def test_the_rank_with_the_slow_forward_pass_is_on_every_critical_path() -> None:
    job = Job(forwards={1: 25.0}).train(100)
    made = run(*(job.batch(rank) for rank in range(4)), interval="60s", window="60s")
    times = values_of(made, "zernel.step.critical_path.time")
    spent = {(one["zernel.rank"], one["zernel.phase"]): value for one, value in times}
    assert {rank for rank, _ in spent} == {1}
    assert spent[1, "gpu_compute"] == pytest.approx(100 * 0.037, rel=0.02)
    assert sum(spent.values()) == pytest.approx(100 * 0.0491, rel=0.02), "the paths cover all of the job's time"


def test_no_critical_path_is_given_if_a_rank_is_elsewhere() -> None:
    job = Job(forwards={1: 25.0}).train(50)
    made = run(*(job.batch(rank) for rank in range(3)), **ALL)
    assert values_of(made, "zernel.step.critical_path.time") == []
    roots = [attributes_of(span.attributes) for span in named(spans_of(made), "job step")]
    assert roots
    assert not any("zernel.step.critical_path.rank" in root for root in roots)
