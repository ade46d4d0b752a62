"""Two reports side by side: what changed, and when numbers say nothing about one another."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reports import report

from croupier.audit.report.compare import compare, lines
from croupier.errors import SpecError


def changed() -> dict[str, Any]:
    """The same audit of a protocol that no longer leaks who was trained on, and costs more."""
    found = report()
    row = found["rows"][0]
    row["questions"]["membership"] |= {"gain": {"rate": 0.001, "low": -0.01, "high": 0.012}, "status": "none-found"}
    row |= {"accuracy": 0.88, "bytes_per_client": 40000.0}
    return found


def test_nothing_changed() -> None:
    found = compare(report(), report())
    assert found["comparable"]
    assert lines(found) == ["Nothing changed."]


def test_what_changed_is_told_with_its_intervals() -> None:
    found = compare(report(), changed())
    assert found["comparable"]
    (cell,) = found["cells"]
    assert (cell["defence"], cell["question"], cell["apart"]) == ("your protocol", "membership", True)
    assert cell["then"]["gain"]["rate"] == 0.03
    assert lines(found) == [
        "Verdict unchanged (Leaks); data the same; answers changed: 1, with intervals apart: 1.",
        "your protocol, membership: +3.0 (1.8 to 4.2) -> +0.1 (\N{MINUS SIGN}1.0 to 1.2) points; leak -> none-found; "
        "the intervals are apart",
        "your protocol, accuracy: 0.907 -> 0.880",
        "your protocol, bytes_per_client: 36.9\u202fkB -> 40.0\u202fkB",
    ]


def test_other_settings_are_told_first() -> None:
    now = changed()
    now["task"]["model"]["hidden"] = [128]
    said = lines(compare(report(), now))
    assert said[1].startswith("Not comparable:")
    assert said[2] == "setting task.model.hidden: [64] -> [128]"


def test_other_data_and_another_verdict_are_told_before_all_else() -> None:
    now = report()
    now["data"] |= {"train": 999, "digest": "another"}
    now["verdict"]["light"] = "amber"
    found = compare(report(), now)
    assert (found["comparable"], found["data"]) == (False, "differ")
    said = lines(found)
    assert said[0].startswith("Verdict Leaks -> Caution; data differ; answers changed: 0")
    assert "setting data.train: 1442 -> 999" in said


def test_a_report_that_does_not_say_its_data_is_not_said_to_have_others() -> None:
    then = changed()
    del then["data"]
    found = compare(then, report())
    assert (found["comparable"], found["data"]) == (True, "not told")
    assert "data not told" in lines(found)[0]


def test_other_seeds_and_another_protocol_compare() -> None:
    now = report()
    now["protocol"]["place"]["servers"] = 5
    now |= {"runs": 40, "seeds": list(range(40)), "version": "0.2.0"}
    found = compare(report(), now)
    assert found["comparable"]
    assert {one["key"] for one in found["settings"]} == {"protocol.place.servers", "runs", "seeds", "version"}


def test_defences_and_units_that_came_and_went() -> None:
    now = report()
    now["rows"][2]["defence"] = "shuffle-layer"
    now["questions"]["reconstruction"]["unit"] = "bits"
    said = lines(compare(report(), now))
    assert "shuffle-parameter: only in the first report" in said
    assert "shuffle-layer: only in the second report" in said
    assert "none, reconstruction: its unit changed, nothing to compare" in said


@pytest.mark.parametrize(
    ("found", "match"),
    [
        ([], "the second report: kind = 'list' is no audit report; give what croupier audit --json wrote"),
        ({"kind": "croupier run"}, "the second report: kind = 'croupier run' is no audit report"),
        ({"kind": "croupier audit"}, "the second report: schema = None, not 3; repeat that audit"),
        ({"kind": "croupier audit", "schema": 2}, "the second report: schema = 2, not 3; repeat that audit"),
    ],
)
def test_what_is_no_report_is_refused(found: Any, match: str) -> None:
    with pytest.raises(SpecError, match=match):
        compare(report(), found)


def test_holes_compare() -> None:
    now = report() | {"rows": [None, {"own": True, "questions": None}], "questions": None}
    assert lines(compare(report(), now))
