"""Without the extra, `validate` says what to install."""

import subprocess
import sys

CONFIG = """
receivers: {kafka: }
exporters: {kafka: }
service: {pipelines: {metrics: {receivers: [kafka], exporters: [kafka]}}}
"""
WITHOUT = "import sys; sys.modules['confluent_kafka'] = None; from otel_zernel.__main__ import main; sys.exit(main())"


def test_a_missing_package_is_one_sentence_for_each_component() -> None:
    command = [sys.executable, "-c", WITHOUT, "validate", "--config", f"yaml:{CONFIG}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    output = done.stdout + done.stderr
    assert "receivers::kafka: the kafka receiver needs confluent-kafka: pip install 'otel-zernel[kafka]'" in output
    assert "exporters::kafka: the kafka exporter needs confluent-kafka and xxhash: pip install" in output
