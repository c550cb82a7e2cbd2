"""The JSON Schema of `otel-zernel why --json`: `python -m docs.why_schema` writes docs/why.schema.json."""

import json

from docs.catalogue import ROOT
from otel_zernel_commands.why.rendering.as_json import Report

PATH = ROOT / "docs" / "why.schema.json"


def schema() -> str:
    """The schema of the code, as text."""
    tree = Report.model_json_schema(mode="serialization", by_alias=True)
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **tree}, indent=2) + "\n"


if __name__ == "__main__":
    PATH.write_text(schema(), "utf-8")
