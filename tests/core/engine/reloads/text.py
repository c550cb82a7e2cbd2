"""The configuration that the tests of reloads change."""

TEXT = """
receivers: {feed: , feed/b: }
processors: {summer/a: , summer/b: , doubler: }
exporters: {sink: {sending_queue: {num_consumers: 1}}, sink/b: {sending_queue: {num_consumers: 1}}}
extensions: {store: , store/other: }
service:
  extensions: [store, store/other]
  shutdown_timeout: 100ms
  pipelines:
    one: {receivers: [feed], processors: [summer/a, summer/b], exporters: [sink]}
    two: {receivers: [feed/b], exporters: [sink/b]}
"""
QUEUE = "sink: {sending_queue: {num_consumers: 1}}"
