"""The configuration of the attributes processor. The keys are those of the OpenTelemetry Collector."""

from pydantic import Field

from otel_zernel.component import ComponentConfig
from otel_zernel_libraries.attributes.config import AttributeAction
from otel_zernel_libraries.conditions import MatchProperties


class AttributesConfig(ComponentConfig):
    """The changes to the attributes of data points, spans and log records."""

    actions: tuple[AttributeAction, ...] = Field(min_length=1)
    """The changes, in order."""
    include: MatchProperties | None = None
    """Selects the items to change. Without it, all items."""
    exclude: MatchProperties | None = None
    """Leaves items out, after `include`."""
