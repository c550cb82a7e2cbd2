"""A page, with short ways to read it in tests."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel.otlp.points import Attributes
from otel_zernel.testing import Dropped
from otel_zernel_libraries.prometheus import Format, Options, Page
from tests.otlp import data

TEXT, OPENMETRICS, PROTOBUF = Format(), Format(openmetrics=True), Format(protobuf=True)


class Shown:
    """A page, with its dropped points and its warnings."""

    def __init__(self, **options: object) -> None:
        self.dropped = Dropped()
        self.warnings: list[str] = []
        self.page = Page(
            Options(without_scope_info=True, **options),  # type: ignore[arg-type]  # each test passes valid options
            self.dropped,
            lambda template, *arguments: self.warnings.append(template % arguments),
        )

    def update(self, *metrics: Metric, now: float = 0, resource: Attributes | None = None) -> None:
        self.page.update(data(*metrics, resource=resource), now)

    def text(self, format_: Format = TEXT, now: float = 0) -> str:
        return self.page.render(format_, now).decode()

    def lines(self, format_: Format = TEXT, now: float = 0) -> list[str]:
        """The samples, without comments."""
        return [line for line in self.text(format_, now).splitlines() if not line.startswith("#")]
