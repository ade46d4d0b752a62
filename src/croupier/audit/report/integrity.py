"""The report of an integrity audit as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from croupier.audit.report import secrecy
from croupier.audit.report.clusters import cluster_map, purity_lines
from croupier.audit.report.page import document, masthead, section
from croupier.audit.report.tables import table
from croupier.audit.report.words import NOTHING, Html, bullets, decimal, joined, tag, terms

ACCURACY = ("Rule", "Accuracy received", "Cluster by cluster", "Backdoor success", "Models")
PURITY = ("Attack", "Purity", "Not alone", "One cluster of all", "Clusters a round", "Honest together")


def render(findings: Mapping[str, Any]) -> str:
    """The whole page; sections of `more` follow the numbers."""
    name, secret = str(findings["name"]), findings.get("confidentiality")
    return document(
        name,
        findings,
        _top(findings, name),
        section("verdicts", "What each attack did", bullets(findings["sentences"])),
        section("threat", "The threat", tag("p", str(findings["threat"])), terms(findings["attacks"].items())),
        section("numbers", "What honest clients receive", _accuracy(findings)),
        section("purity", "Are honest and malicious clients kept apart?", *_purity(findings)),
        section("maps", "Who was in which cluster", *(_map(one) for one in findings["maps"])),
        *(secrecy.sections(secret) if secret else ()),
        *(_more(number, one) for number, one in enumerate(findings.get("more", ()))),
        section("paper", "What the paper prints", bullets(findings["paper"])),
        section("setting", "Setting", _facts(findings), tag("h3", "Notes"), bullets(findings["notes"])),
        pictures=True,
    )


def _top(findings: Mapping[str, Any], name: str) -> Html:
    counted = (
        f"{findings['clients']} clients, {findings['cohort']} a round, {findings['rounds']} rounds, "
        f"{findings['runs']} runs; {findings['malicious']} clients are malicious where there is an attack."
    )
    answers = (tag("p", str(said), class_="answer") for said in findings["verdict"])
    return masthead("Croupier integrity audit", name, findings, *answers, tag("p", counted))


def _accuracy(findings: Mapping[str, Any]) -> Html:
    by: dict[str, list[list[Html]]] = {}
    for row in findings["rows"]:
        cells = [
            joined([str(row["rule"])]),
            *(_share(row[name]) for name in ("received", "clusters", "success")),
        ]
        by.setdefault(str(row["attack"]), []).append([*cells, _count(row["models"])])
    caption = "Per cent of the test records, with 95 % intervals over runs. Models: how many there are at the end."
    return table("numbers", caption, ACCURACY, [(title.capitalize(), lines) for title, lines in by.items()])


def _purity(findings: Mapping[str, Any]) -> list[Html]:
    own = [row for row in findings["rows"] if "purity" in row and row["attack"] != "no attack"]
    cells = [
        [joined([str(row["attack"])]), *(_share(row["purity"][name]) for name in ("all", "several", "one")),
         _count(row["purity"]["groups"]), _share(row["purity"]["together"])]
        for row in own
    ]  # fmt: skip
    ends = [
        [joined([str(row["attack"])]), *(_share(row["labels"][name]) for name in ("all", "several")),
         _share(row["labels"]["one"]), _count(row["labels"]["groups"]), _share(row["labels"]["together"])]
        for row in own
    ]  # fmt: skip
    caption = (
        "Per cent, with 95 % intervals over runs. Purity: the share of clients in clusters most of whose members are "
        "of their own kind; a client alone counts as right, and 'not alone' leaves these out. Honest together: the "
        "share of the honest in the cluster with most of them."
    )
    curves = {str(row["attack"]): [one["all"] | {"one": one["one"]["rate"]} for one in row["rounds"]] for row in own}
    said = (
        "Purity of the clusters by round, from 0.5 up: means over runs with 95 % intervals; dotted: one cluster of "
        "all. The goal is for label flip."
    )
    groups = [("Of those present, mean over rounds", cells), ("Of everybody's last label", ends)]
    return [
        tag("figure", purity_lines(curves, findings["goal"], said), tag("figcaption", said)),
        table("numbers", caption, PURITY, groups),
    ]


def _map(one: Mapping[str, Any]) -> Html:
    everyone = sorted({name for labels in one["rounds"] for name in labels})
    bad = [name for name in everyone if name in set(one["malicious"])]
    honest = [name for name in everyone if name not in set(bad)]
    title = f"{one['attack']}: clusters by round"
    said = (
        f"{str(one['attack']).capitalize()}, first run. A row is a client, honest ones above; a square is a round in "
        "which it took part, and its colour its cluster's. Grey: clusters that never had two members at once."
    )
    return tag("figure", cluster_map(one["rounds"], honest, bad, title), tag("figcaption", said))


def _more(number: int, one: Mapping[str, Any]) -> Html:
    return section(f"more-{number}", str(one["title"]), *(tag("p", str(said)) for said in one["paragraphs"]))


def _share(rate: Mapping[str, Any]) -> Html:
    return secrecy.rate(rate, 100)


def _count(rate: Mapping[str, Any]) -> Html:
    return joined([NOTHING if rate["rate"] is None else decimal(rate["rate"])])


def _facts(findings: Mapping[str, Any]) -> Html:
    pairs = [(key, findings[key]) for key in ("clients", "malicious", "cohort", "rounds", "runs")]
    return terms([*pairs, *findings["task"].items(), ("aggregate", findings["protocol"]["aggregate"])])
