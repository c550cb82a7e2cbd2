"""The otlp_json_file receiver: replays files of OTLP that the file exporter wrote."""

from otel_zernel_receivers.otlp_json_file.receiver import OtlpJsonFileReceiver as OtlpJsonFileReceiver
