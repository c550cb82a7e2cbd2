"""The JSON is that of its published schema, and has the numbers of the report."""

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from docs.why_schema import PATH, schema
from otel_zernel_commands.why.findings import WhyReport
from otel_zernel_commands.why.rendering.as_json import report_json
from otel_zernel_libraries.job_choice import JobChoice
from tests.commands.why import test_text
from tests.commands.why.answers import healthy_report, slow_report
from tests.commands.why.recorded_runs import report
from tests.libraries.training.causes.made_answers import CODED, LINES, SLOW, TOKENIZES

REPORTS: dict[str, Callable[[], WhyReport]] = {
    "causes": slow_report,
    "nothing": healthy_report,
    "no times of activities": lambda: report("stalls of 150 ms"),
    "a GPU without steps": lambda: report("GPU, CUDA graph"),
    "no job": lambda: report("nothing", JobChoice(pid=1)),
    **test_text.REPORTS,
}


def test_the_published_schema_is_that_of_the_code() -> None:
    assert PATH.read_text("utf-8") == schema(), "run `make docs`"
    jsonschema.Draft202012Validator.check_schema(json.loads(schema()))


@pytest.mark.parametrize("name", REPORTS)
def test_the_output_has_its_schema(name: str) -> None:
    jsonschema.validate(json.loads(report_json(REPORTS[name]())), json.loads(PATH.read_text("utf-8")))


def test_the_schema_refuses_a_cause_without_a_gain() -> None:
    tree = json.loads(report_json(slow_report()))
    del tree["jobs"][0]["causes"][0]["gain"]
    with pytest.raises(jsonschema.ValidationError, match="'gain' is a required property"):
        jsonschema.validate(tree, json.loads(schema()))


def test_a_cause_has_all_that_a_program_needs() -> None:
    tree = json.loads(report_json(slow_report(LINES)))
    job: dict[str, Any] = tree["jobs"][0]
    assert tree["schema_version"] == 1
    assert job["causes"][0] == {
        "cause": "segment",
        "phase": "data_loading",
        "position": "load",
        "activity": "python",
        "rank": None,
        "gain": TOKENIZES.gain,
        "gain_low": TOKENIZES.gain_low,
        "gain_high": TOKENIZES.gain_high,
        "share": TOKENIZES.share,
        "evidence": [{"text": one.text, "value": one.value, "unit": one.unit} for one in TOKENIZES.evidence],
        "advice": list(TOKENIZES.advice),
        "code": ["train.py:42 tokenize", "data/text.py:118 Corpus.clean", "train.py:61 main"],
        "lines": [{"line": line.line, "call": line.call, "seconds": line.seconds} for line in CODED.lines],
    }
    assert [cause["rank"] for cause in job["causes"]] == [None, 1]
    assert [cause["gain"] for cause in job["causes"]] == sorted((cause.gain for cause in SLOW.causes), reverse=True)
    assert (job["verdict"], job["hung"], job["device"], job["best"]) == ("input_bound", None, None, SLOW.best)
    assert job["hidden"] == [{"position": "after_step", "activity": "socket", "rank": 0, "time": 0.0021}]
    assert (job["ranks_seen"], job["world_size"]) == (2, 2)


def test_a_healthy_job_has_no_causes_and_the_best_step() -> None:
    [job] = json.loads(report_json(healthy_report()))["jobs"]
    assert (job["causes"], job["verdict"], job["best"]) == ([], "compute_bound", 0.0402)
