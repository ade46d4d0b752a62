"""Vectors of local privacy: the same coins give the same bits on every machine, and bad cases their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import croupier.errors as errors
import croupier.pipeline  # noqa: F401 - registers the parts
from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice, Update
from croupier.privacy.local import LocalPrivacy

CASES: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "privacy.json").read_text("utf-8"))


def run(case: dict[str, Any]) -> list[str]:
    """What may travel, as exact hexadecimal floats."""
    vector = torch.tensor(case["vector"], dtype=torch.float32)
    update = Update(vector, Layout((Slice("w", (len(vector),)),)), form=case["form"])
    sent, _ = LocalPrivacy.parse(case["privacy"])(update, Coins.from_seed(case["seed"]))
    return [float(value).hex() for value in sent.vector]


@pytest.mark.parametrize("name", CASES)
def test_vectors(name: str) -> None:
    case = CASES[name]
    assert ("error" in case) == ("_bad_" in name)
    if "error" in case:
        with pytest.raises(getattr(errors, case["error"]), match=case["match"]):
            run(case)
    else:
        assert run(case) == case["out"]
