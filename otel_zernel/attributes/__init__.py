"""Actions on attributes: insert, update, upsert, delete, hash, extract and convert. Processors share them."""

from otel_zernel.attributes.actions import Act, AttributeValues, compiled, names_used_by
from otel_zernel.attributes.changes import AttributeChanges, changes_by, write
from otel_zernel.attributes.config import ActionName, AttributeAction

__all__ = [
    "Act",
    "ActionName",
    "AttributeAction",
    "AttributeChanges",
    "AttributeValues",
    "changes_by",
    "compiled",
    "names_used_by",
    "write",
]
