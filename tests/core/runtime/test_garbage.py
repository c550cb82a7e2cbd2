"""Python's garbage collector does not run while many objects are made."""

import gc

import pytest

from otel_zernel.runtime.garbage import collection_deferred


def test_no_collection_runs_while_objects_are_made_and_later_ones_do_not_visit_them() -> None:
    collections = [sum(generation["collections"] for generation in gc.get_stats())]
    frozen = gc.get_freeze_count()
    with collection_deferred():
        made = [[number] for number in range(100_000)]
        collections.append(sum(generation["collections"] for generation in gc.get_stats()))
    assert collections[0] == collections[1]
    assert gc.get_freeze_count() >= frozen + len(made)
    assert gc.isenabled()


def test_few_objects_are_collected_as_usual() -> None:
    gc.collect()
    frozen = gc.get_freeze_count()
    with collection_deferred():
        made = [[number] for number in range(100)]
    assert gc.get_freeze_count() == frozen
    assert len(made) == 100


def test_contexts_may_overlap() -> None:
    with collection_deferred():
        with collection_deferred():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collections_run_again_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), collection_deferred():
        1 / 0  # noqa: B018
    assert gc.isenabled()
