"""The audit of hidden coordinates alone: any rule of averaging, one page, and what it cannot be asked of."""

from __future__ import annotations

import json
from html import escape, unescape
from typing import Any

import pytest

from croupier import disclosure, soundness
from croupier.audit.exposure import FAILED, THREAT, at
from croupier.audit.lies import ALL, LIES
from croupier.audit.secrecy import Depth, orders
from croupier.encode.hidden import HiddenUnits
from croupier.errors import SpecError
from croupier.spec import load

SMALL = [
    "task.split.clients=6", "federation.cohort=3", "task.fit.epochs=1", "task.model.hidden=[16]", "run.workers=1",
    "protocol.aggregate=mean",
]  # fmt: skip
DEPTH = Depth(rounds=2, uploads=1, pictures=20)


@pytest.fixture(scope="module")
def found() -> disclosure.Disclosure:
    return disclosure.examine("tazza", sets=SMALL, seeds=2, seed=3, depth=DEPTH)


def test_findings_are_plain_values_of_the_description(found: disclosure.Disclosure) -> None:
    plain = found.plain
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert (plain["kind"], plain["name"]) == ("croupier secrecy audit", "tazza")
    assert (plain["clients"], plain["cohort"], plain["rounds"], plain["runs"], plain["seeds"]) == (6, 3, 2, 2, [3, 4])
    assert plain["protocol"]["aggregate"]["use"] == "mean"
    assert plain["threat"] == THREAT
    assert plain["verdict"] == [plain["confidentiality"]["verdict"]]


def test_the_task_is_the_descriptions_where_an_audit_of_clusters_adds_to_it() -> None:
    spec = load("tazza", SMALL)
    one, more = disclosure.described(spec), soundness.setting_of(spec)
    assert (one.share, one.root.records) == (0, 0)
    assert (more.share, more.root.records) == (soundness.SHARE, 100)


def test_matching_under_a_mean_recovers_the_rule_where_the_first_model_is_known(found: disclosure.Disclosure) -> None:
    orders = found.plain["confidentiality"]["orders"]
    known = next(one for one in orders if (one["first"], one["kept"]) == ("open", False))
    assert all(group["absolute"]["rate"] == 1 for group in known["groups"])


def test_a_mean_is_tampered_with_once(found: disclosure.Disclosure) -> None:
    lines = found.plain["confidentiality"]["tampered"]
    assert [(line["rule"], line["lie"]) for line in lines] == [(ALL, lie) for lie in LIES]
    assert {line["alone"] for line in lines} == {None}
    assert next(line for line in lines if line["lie"] == "frame")["left_out"] == 2


def test_the_page_has_a_masthead_its_sections_and_its_pictures(found: disclosure.Disclosure) -> None:
    stamp = {"made": "2026-11-15T23:59:00Z", "version": "0.1.0", "command": "croupier audit tazza --kind secrecy"}
    page = disclosure.Disclosure({**found.plain, **stamp}).page()
    top, _, rest = page.partition("</header>")
    for said in ("Croupier secrecy audit", "15 November 2026", stamp["command"], *found.plain["verdict"]):
        assert escape(said) in top
    for title in (
        "What does the server learn?", "How much of each permutation is recovered?", "What do single steps give away?",
        "A client that breaks the rule", "Setting", "Notes",
    ):  # fmt: skip
        assert rest.count(f">{title}</h") == 1
    assert all(escape(note) in rest for note in found.plain["notes"])
    assert "hidden-units" in rest
    assert "img-src data:" in unescape(page)
    strips: list[dict[str, Any]] = found.plain["confidentiality"]["pictures"]
    assert page.count("data:image/png;base64,") == sum(len(strip["pictures"]) for strip in strips) > 0


@pytest.mark.parametrize(
    ("sets", "seeds", "said"),
    [
        (["protocol.encode=floats", "protocol.aggregate=mean"], 2, "protocol.encode = 'floats': .* use 'hidden-units'"),
        (["protocol.encode.kept=true", "protocol.encode.form=delta", "protocol.aggregate=mean",
          "protocol.privacy={use='gaussian', clip=1.0, sigma=1.0}"], 2, "protocol.privacy = 'gaussian': .* use 'none'"),
        (["protocol.encode.kept=true", "protocol.encode.form=delta", "protocol.encode.first=open",
          "protocol.aggregate=mean"], 2, "first = 'open' hands out .* use first = 'clients'"),
        ([], 1, "^seeds = 1: .* at least 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_audited_is_refused(sets: list[str], seeds: int, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        disclosure.examine("tazza", sets=sets, seeds=seeds)


def test_a_rule_that_needs_the_last_model_is_tried_in_kept_orders_alone() -> None:
    pipeline = load("tazza", ["protocol.aggregate=multi-krum", "protocol.aggregate.f=1", "protocol.encode.kept=true",
                              "protocol.encode.form=delta"]).protocol  # fmt: skip
    assert not pipeline.aggregate.anew
    whole = pipeline.model_copy(update={"encode": HiddenUnits(kept=True)})
    for one in (pipeline, whole):
        assert [(each.encode.kept, each.encode.first) for each in orders(one)] == [(True, "clients")]  # type: ignore[attr-defined]


def test_differences_are_read_as_well_as_weights() -> None:
    sets = [*SMALL, "protocol.encode.kept=true", "protocol.encode.form=delta"]
    found = disclosure.examine("tazza", sets=sets, seeds=2, depth=DEPTH).plain["confidentiality"]
    (own,) = found["orders"]
    assert at(own, "told")["psnr"]["rate"] > 40
    assert at(own, "relative", "in the unknown order")["psnr"]["rate"] > 40
    assert FAILED not in found["says"]
