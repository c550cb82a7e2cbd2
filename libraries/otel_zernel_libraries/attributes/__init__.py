"""Actions on attributes: insert, update, upsert, delete, hash, extract and convert. Processors share them."""

from otel_zernel_libraries.attributes.actions import Act, AttributeValues, compiled, names_used_by
from otel_zernel_libraries.attributes.changes import AttributeChanges, changes_by, write
from otel_zernel_libraries.attributes.config import ActionName, AttributeAction

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
