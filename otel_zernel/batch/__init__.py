"""What flows through a pipeline: batches of OTLP metrics, spans, log records and profiles."""

from otel_zernel.batch.batch import Batch as Batch
from otel_zernel.batch.counts import ItemCount as ItemCount
from otel_zernel.batch.counts import count_items as count_items
from otel_zernel.batch.counts import points as points
from otel_zernel.batch.signals import ALL_SIGNALS as ALL_SIGNALS
from otel_zernel.batch.signals import SIGNALS as SIGNALS
from otel_zernel.batch.signals import STABLE_SIGNALS as STABLE_SIGNALS
from otel_zernel.batch.signals import Signal as Signal
from otel_zernel.batch.splitting import split_batch as split_batch
from otel_zernel.batch.splitting import split_batch_by_bytes as split_batch_by_bytes
from otel_zernel.batch.thin import EXPLICIT_HISTOGRAMS as EXPLICIT_HISTOGRAMS
