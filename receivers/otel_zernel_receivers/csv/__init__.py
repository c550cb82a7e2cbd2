"""The csv receiver: reads metrics from CSV files."""

from otel_zernel_receivers.csv.receiver import CsvReceiver as CsvReceiver
