"""A point is stored once, however often and by however many writers it is written."""

import asyncio

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.writer import StoreWriter
from tests.core.parts import batch_of
from tests.libraries.store.given import (
    flat,
    gauges,
    histograms,
    points_in,
    read_all,
    writer,
    writing,
)


async def test_a_batch_that_is_written_twice_is_stored_once(settings: WritableStoreConfig, store: StoreWriter) -> None:
    for stored, repeated in ((30, 0), (0, 30)):
        written = await store.write(Batch.join([gauges(20, times=1), histograms(10)]), 0)
        assert (written.stored, written.repeated, written.conflicting) == (stored, repeated, 0)
    assert await points_in(settings) == 30


async def test_of_two_values_for_one_time_the_first_stays_and_the_other_is_counted(
    settings: WritableStoreConfig, store: StoreWriter
) -> None:
    await store.write(batch_of(1.0, 2.0), 0)
    written = await store.write(batch_of(1.0, 5.0), 0)
    assert (written.stored, written.repeated, written.conflicting) == (0, 1, 1)
    assert flat(batch.metrics for batch in await read_all(settings)) == flat([batch_of(1.0, 2.0).metrics])


async def test_of_two_values_for_one_time_in_one_batch_the_first_stays(
    settings: WritableStoreConfig, store: StoreWriter
) -> None:
    written = await store.write(Batch.join([batch_of(1.0), batch_of(2.0), batch_of(1.0)]), 0)
    assert (written.stored, written.repeated, written.conflicting) == (1, 1, 1)
    assert flat(batch.metrics for batch in await read_all(settings)) == flat([batch_of(1.0).metrics])


async def test_many_writers_with_the_same_batches_in_any_order_store_each_point_once(
    settings: WritableStoreConfig,
) -> None:
    batches = [gauges(50, times=4, first=number) for number in range(6)]
    stores = [writer(settings) for _ in range(3)]
    orders = (batches, batches[::-1], batches[3:] + batches[:3])
    try:
        written = await asyncio.gather(
            *(store.write(batch, 0) for store, order in zip(stores, orders, strict=True) for batch in order)
        )
    finally:
        for store in stores:
            await store.close()
    assert sum(one.conflicting for one in written) == 0
    assert sum(one.stored for one in written) == await points_in(settings) == 9 * 50


async def test_a_small_cache_of_series_changes_nothing(settings: WritableStoreConfig) -> None:
    async with writing(settings, series=4) as store:
        for first in range(3):
            await store.write(gauges(30, times=2, first=2 * first), 0)
    found = await read_all(settings)
    assert sum(batch.point_count for batch in found) == 180
    expected = [gauges(30, times=2, first=2 * first).metrics for first in range(3)]
    assert flat(batch.metrics for batch in found) == flat(expected)


async def test_the_exemplars_of_a_repeated_point_are_not_added_to_the_first_one(
    settings: WritableStoreConfig, store: StoreWriter
) -> None:
    bare = histograms(3)
    for point in bare.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points:
        point.ClearField("exemplars")
    await store.write(Batch.join([bare, histograms(3)]), 0)
    await store.write(histograms(4), 0)
    found = [batch.metrics for batch in await read_all(settings)]
    assert flat(found) == flat([bare.metrics, histograms(4).metrics])


async def test_the_order_of_attributes_makes_no_other_series(store: StoreWriter) -> None:
    given = gauges(1, times=1)
    turned = given.copy()
    attributes = turned.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].attributes
    attributes.reverse()
    assert attributes[0].key != "name"
    await store.write(given, 0)
    written = await store.write(turned, 0)
    assert (written.stored, written.repeated) == (0, 1)


async def test_points_of_a_batch_whose_attributes_have_another_order_are_of_one_series(
    settings: WritableStoreConfig, store: StoreWriter
) -> None:
    given = gauges(1, times=1)
    points = given.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    second = points.add()
    second.CopyFrom(points[0])
    second.attributes.reverse()
    second.time_unix_nano += 1
    written = await store.write(given, 0)
    metrics = [metric for batch in await read_all(settings) for metric in flat([batch.metrics])]
    assert written.stored == 2
    assert len(metrics) == 2
