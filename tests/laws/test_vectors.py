"""Vectors of releases: every `release_*.json` is read, so a new release needs a file and no code here.

A case names the release, the layers, the rows and the seed of the coins, and either what leaves or the error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import croupier.errors as errors
import croupier.pipeline  # noqa: F401 - registers the parts
from croupier.core.coins import Coins
from croupier.core.tier import Tier
from croupier.core.update import Layout, Slice
from croupier.release.bucketed import Tiered
from croupier.release.release import Release

FOLDER = Path(__file__).parents[1] / "vectors"


def cases(path: Path) -> list[Any]:
    """The cases of a file."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return [pytest.param(case, id=name) for name, case in found.items()]


def run(case: dict[str, Any]) -> dict[str, Any]:
    """What leaves, as lists."""
    layout = Layout(tuple(Slice(name, (size,)) for name, size in case["layers"].items()))
    kind = torch.float32 if case["modulus"] is None else torch.int64
    rows = [torch.tensor(row, dtype=kind) for row in case["rows"]]
    release = Release.parse(case["release"])
    coins = Coins.from_seed(case["seed"])
    if isinstance(release, Tiered):
        out = release.within(rows, layout, case["modulus"], coins, [Tier(*tier) for tier in case["tiers"]])
    else:
        out = release(rows, layout, case["modulus"], coins)
    return {name: values.tolist() for name, values in out.items()}


def check(name: str, case: dict[str, Any]) -> None:
    """A good case gives its output; a bad one its error."""
    assert ("error" in case) == ("_bad_" in name), "a case with an error has _bad_ in its name, and no other has"
    if "error" in case:
        with pytest.raises(getattr(errors, case["error"]), match=case["match"]):
            run(case)
    else:
        assert run(case) == case["out"]


@pytest.mark.parametrize("case", [case for path in sorted(FOLDER.glob("release_*.json")) for case in cases(path)])
def test_vectors(case: dict[str, Any], request: pytest.FixtureRequest) -> None:
    check(request.node.callspec.id, case)
