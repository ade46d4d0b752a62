"""Claims of the papers: each figure has a row, each command exists, and numbers of ours stand where they say."""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import click
import numpy as np
import pytest
import typer
from tools.results import PAGE, written

from croupier.cli import app
from croupier.encode.moduli import values_of
from croupier.kernels import residues
from croupier.toml_read import presets
from croupier_lab.papers.catalogue import FIGURES
from croupier_lab.papers.claims import CLAIMS, TITLES, counts, listed
from croupier_lab.papers.shared.claim import TESTED, Claim, ClaimStatus
from croupier_lab.papers.shared.figure import Means
from croupier_lab.papers.shared.reproduce import reproduce

REPOSITORY = Path(__file__).parents[4]
BENCHMARKS = (REPOSITORY / "docs" / "benchmarks.md").read_text("utf-8")
EVERY = [(f"{paper}, {claim.name}", claim) for paper, claims in CLAIMS.items() for claim in claims]
CASES = pytest.mark.parametrize("claim", [claim for _, claim in EVERY], ids=[name for name, _ in EVERY])
DONE = (ClaimStatus.REPRODUCED, ClaimStatus.CONTRADICTED, ClaimStatus.SUBSTITUTED)
# The figures, tables, algorithms and theorems that each paper numbers.
NUMBERED = {
    "rns": {"Figure": 15, "Table": 12, "Algorithm": 9, "Theorem": 1},
    "intra": {"Figure": 7, "Table": 11, "Algorithm": 1, "Proposition": 2},
    "rain": {"Figure": 7, "Algorithm": 2, "Lemma": 1},
    "tazza": {"Figure": 18, "Table": 2, "Algorithm": 1, "Listing": 1},
}
OTHERS = {
    "rns": ["Lemma 2", "Proposition 3.1", "Proposition A.1", "Proposition A.2", "Proposition A.3", "Claim A.1"],
    "intra": ["Theorem 6.1"],
    "rain": ["Table I", "Table II", "Table III"],
    "tazza": [],
}


def numbered(claims: tuple[Claim, ...]) -> set[str]:
    """What rows are named after, one by one: "Figures 2 and 3" is both."""
    found = set()
    for claim in claims:
        for kind, first, second in re.findall(r"([A-Z][a-z]+?)s? ((?:\w\.)?\w+)(?: and (\d+))?", claim.name):
            found |= {f"{kind} {first}"} | ({f"{kind} {second}"} if second else set())
    return found


@pytest.mark.parametrize("paper", CLAIMS)
def test_everything_that_a_paper_numbers_has_a_row(paper: str) -> None:
    wanted = {f"{kind} {n}" for kind, most in NUMBERED[paper].items() for n in range(1, most + 1)} | {*OTHERS[paper]}
    assert wanted - numbered(tuple(CLAIMS[paper])) == set()
    names = [claim.name for claim in CLAIMS[paper]]
    assert len(set(names)) == len(names)


def test_every_figure_that_can_be_run_has_a_row() -> None:
    shown = {name for _, claim in EVERY for name in re.findall(r"croupier reproduce (\S+)", claim.command)}
    assert set(FIGURES) - shown == set()


@CASES
def test_what_was_done_says_where_and_what_was_not_says_why(claim: Claim) -> None:
    if claim.status in DONE:
        assert claim.seen is not None
        assert claim.command
        assert claim.ours or claim.seen is TESTED
        assert claim.why or claim.status is ClaimStatus.REPRODUCED or claim.ours
    else:
        assert claim.seen is None
        assert claim.why
        assert not claim.ours
    assert (claim.seen is TESTED) == (claim.command.startswith("pytest"))
    # The page begins both with a capital letter, which a symbol (r = 5, m - 1) does not survive.
    assert not any(re.match(r"\w [=-]", text) for text in (claim.ours, claim.why))
    assert not any("|" in str(text) for text in claim.plain().values()), "it ends a cell of the page"


@CASES
def test_every_command_exists(claim: Claim) -> None:
    words = shlex.split(claim.command)
    if not words:
        return
    if words[0] == "pytest":
        file, _, name = words[1].partition("::")
        tree = ast.parse((REPOSITORY / file).read_text("utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        return
    assert words[0] == "croupier"
    command, rest = typer.main.get_command(app), words[1:]
    while isinstance(command, click.Group):
        command, rest = command.commands[rest[0]], rest[1:]
    known = {name for option in command.get_params(click.Context(command)) for name in option.opts}
    assert {word for word in rest if word.startswith("--")} <= known
    if command.name == "reproduce":
        assert rest[0] in FIGURES
        only = rest[rest.index("--only") + 1] if "--only" in rest else ""
        scale = rest[rest.index("--scale") + 1] if "--scale" in rest else "smoke"
        figure = FIGURES[rest[0]]
        assert not only or any(only in case for case in figure.case_names(scale))  # type: ignore[arg-type]
        assert "--rounds" not in rest or figure.takes_rounds
    if "--description" in rest:
        assert rest[rest.index("--description") + 1] in presets()


def section(where: str) -> str:
    """The text below a heading of the benchmarks, or of a stored result, with its lines joined."""
    if where.startswith("results/"):
        return (REPOSITORY / "docs" / where).read_text("utf-8")
    (found,) = re.findall(rf"^## {re.escape(where)}\n(.*?)(?=^## |\Z)", BENCHMARKS, re.MULTILINE | re.DOTALL)
    return " ".join(str(found).split())


def figures_in(text: str) -> set[str]:
    """Numbers with a point or a comma, and those of two digits or more, without their signs."""
    return set(re.findall(r"(?<![\w.,^])\d+(?:[.,]\d+)+|(?<![\w.,^])\d{2,}(?![\w.,])", text))


@CASES
def test_every_number_of_ours_stands_where_it_is_said_to(claim: Claim) -> None:
    if claim.seen is None or claim.seen is TESTED:
        return
    told = section(claim.seen.where)
    missing = {
        one
        for one in figures_in(claim.ours)
        if not re.search(rf"(?<![\d.,]){re.escape(one)}(?:\.0)?(?!\d|[.,]\d)", told)
    }
    assert missing == set()
    if not claim.seen.where.startswith("results/"):
        assert claim.seen.date in told


def test_a_number_that_nobody_measured_is_seen() -> None:
    told = section("The median over groups")
    assert figures_in("28.0 %, prior 44.7 %, r = 4, x^4, 1,000 and 12") == {"28.0", "44.7", "1,000", "12"}
    assert all(one in told for one in ("28.0", "44.7"))
    assert "28.1" not in told


@pytest.mark.parametrize("file", sorted((REPOSITORY / "docs" / "results").glob("*.json")), ids=lambda file: file.stem)
def test_a_stored_count_is_what_its_command_counts(file: Path) -> None:
    stored = json.loads(file.read_text("utf-8"))
    assert file.stem == stored["entry"].replace("/", "-")
    assert any(claim.seen and claim.seen.where == f"results/{file.name}" for _, claim in EVERY)
    found = reproduce(FIGURES[stored["entry"]], stored["scale"], Means(), watch=print)
    assert json.loads(json.dumps(found["rows"])) == stored["rows"]


def test_the_list_is_one_object_and_the_page_is_what_it_says() -> None:
    found = listed()
    assert found["papers"].keys() == TITLES.keys() == found["counts"].keys()
    json.dumps(found, allow_nan=False)
    for paper, claims in CLAIMS.items():
        assert sum(counts(claims).values()) == len(claims) == len(found["papers"][paper]["claims"])
    assert PAGE.read_text("utf-8") == written(), "run `make docs`"


def test_the_papers_own_example_of_remainders() -> None:
    """Appendix C.1 of the source-inference paper."""
    # Signed: the number nearest to 0 of those that are 55 modulo 105.
    assert residues.join(np.array([[1, 0, 6]]), (3, 5, 7)).tolist() == [55 - 105]
    # Proposition 3.1 has no 55 for a product of 105; two clients with two digits reach sums of -198 to 198.
    assert (-(105 // 2), (105 - 1) // 2) == (-52, 52)
    assert values_of(2, 99) == 397


def left_of(one: Sequence[object], given: Sequence[object]) -> float:
    """Conditional entropy in bits, where every place of both lists is as likely."""
    both, alone = Counter(zip(one, given, strict=True)), Counter(given)
    return -sum(count / len(one) * math.log2(count / alone[second]) for (_, second), count in both.items())


def test_equal_entropies_of_the_middle_do_not_give_equal_entropies_of_the_first() -> None:
    """Proposition A.3 of the source-inference paper, for the chains X -> Y -> Z and X -> Y -> W."""
    # Y is two fair bits, Z the first and W the second: functions of Y, so that both are chains whatever X is.
    drawn = list(product((0, 1), repeat=3))
    y, z, w = [(one, two) for one, two, _ in drawn], [one for one, _, _ in drawn], [two for _, two, _ in drawn]
    assert left_of(y, z) == left_of(y, w) == 1
    assert (left_of(z, z), left_of(z, w)) == (0, 1), "X is the first bit"
    assert left_of(drawn, z) == left_of(drawn, w) == 2, "X is Y and a third bit: Y is a function of X, as in Theorem 1"


def test_the_number_of_rules_is_what_the_paper_says() -> None:
    assert math.lgamma(28 * 28 + 1) / math.log(10) > 1930
