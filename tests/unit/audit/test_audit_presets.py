"""The check of `tools.audit_presets` can fail: a report with a fault that it looks for is told from a whole one."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from tools.audit_presets import ANSWER, faults, held_by, statuses


def _report() -> dict[str, Any]:
    rows = [
        {"defence": name, "own": own, "questions": {"source": dict.fromkeys(ANSWER) | {"status": "leak"}}}
        for name, own in (("rain", True), ("none", False))
    ]
    return {"rows": rows}


def test_a_whole_report_has_no_fault() -> None:
    assert faults("rain", 0, json.dumps(_report())) == []
    assert statuses(_report()["rows"]) == "1 leak; 2 leak"


@pytest.mark.parametrize("key", ANSWER)
def test_an_answer_that_lacks_a_key_is_a_fault(key: str) -> None:
    report = _report()
    del report["rows"][1]["questions"]["source"][key]
    assert faults("rain", 0, json.dumps(report)) == [f"none: source has no {key}"]


def test_another_first_row_is_a_fault() -> None:
    assert faults("tazza", 0, json.dumps(_report())) == ["the first row is 'rain'"]
    report = _report()
    report["rows"].reverse()
    assert faults("rain", 0, json.dumps(report)) == ["the first row is 'none'"]


def test_a_missing_question_is_a_fault() -> None:
    report = _report()
    report["rows"][0]["questions"] = {}
    assert faults("rain", 0, json.dumps(report)) == ["rain: source is missing"]
    report["rows"][1]["questions"] = {}
    assert faults("rain", 0, json.dumps(report)) == ["no question"]


def test_an_audit_that_failed_or_printed_no_report_is_a_fault() -> None:
    assert faults("rain", 3, json.dumps(_report())) == ["exit code 3"]
    assert faults("rain", 0, "")[0].startswith("no report")
    assert faults("rain", 0, "{}")[0].startswith("no report")


def test_memory_is_read_of_processes_that_live() -> None:
    assert held_by(os.getpid()) > 1 << 20
    assert held_by(0) == 0
