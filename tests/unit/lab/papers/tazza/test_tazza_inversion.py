"""Tazza's confidentiality: every entry runs on little, says what it measured, and stands beside its prior."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.pictures import pictures
from torch import Tensor

from croupier.core.coins import Coins
from croupier.learn.datasets import Cifar10, Mnist
from croupier.learn.models import DlgLeNet, Mlp
from croupier_lab.attacks.gradient_search import Dlg, Inverting
from croupier_lab.papers.shared.figure import SCALES, Figure, Means
from croupier_lab.papers.shared.reproduce import reproduce
from croupier_lab.papers.tazza import inversion, parameter_search, patch_search
from croupier_lab.papers.tazza.confidentiality_defences import CLIP, SHIELDS, Shield
from croupier_lab.papers.tazza.inversion import CASES, PRINTED, InversionCase

COINS = Coins.from_seed(2)


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    made = {"cifar10": pictures("cifar10", 3, 32), "mnist": pictures("mnist", 1, 28)}
    few = (
        InversionCase("MNIST / MLP", Mnist(), Mlp(hidden=(64,)), None, 3),
        InversionCase("searched", Mnist(), Mlp(hidden=(16,)), Inverting(steps=2, labels="known"), 2),
        InversionCase(inversion.CONTROL, Cifar10(), DlgLeNet(), Dlg(steps=1), 2, SHIELDS[:1], 8),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cifar10, "load", lambda *_: made["cifar10"])
        patch.setattr(Mnist, "load", lambda *_: made["mnist"])
        patch.setattr(inversion, "CASES", {"smoke": few})
        patch.setattr(inversion, "TRAINED", {"smoke": (600, 1)})
        patch.setattr(parameter_search, "SIZES", {"smoke": (4, (1,), 64, 200, 50, 100)})
        patch.setattr(patch_search, "PUZZLES", {"smoke": (12, 2, (4,))})
        yield
    torch.set_num_threads(before)


def run(trial: Figure) -> dict[str, Any]:
    found = reproduce(trial, "smoke", Means(), watch=lambda _: None)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def test_every_scale_has_every_setting_and_every_printed_number_its_row() -> None:
    assert set(CASES) == set(SCALES)
    for cases in CASES.values():
        rows = {(case.label, shield.label) for case in cases for shield in case.shields}
        assert set(PRINTED) <= rows
        assert all(case.targets >= 2 for case in cases)


def test_a_matched_rule_gives_back_what_an_undefended_upload_gives() -> None:
    found = run(inversion.FIGURES[0])
    at = {(row["setting"], row["defence"]): row for row in found["rows"]}
    mlp = {shield.label: at["MNIST / MLP", shield.label] for shield in SHIELDS}
    assert mlp["FedAvg"]["_psnr"]["mean"] > 60
    for name in ("Tazza, rule matched", "Tazza, rule leaked"):
        assert mlp[name]["_psnr"]["mean"] > 60
        assert mlp[name]["rule_recovered"].startswith("1.000")
    assert mlp["Tazza, rule unknown"]["_psnr"]["mean"] < 20
    assert mlp["Tazza, rule unknown"]["rule_recovered"] is None
    assert mlp["DP-SGD L"]["_psnr"]["mean"] < 20
    assert all(row["prior_psnr"] is not None and row["records"] >= 2 for row in found["rows"])
    assert any("failed at this scale" in said for said in found["says"])
    assert any("once it matches weights" in said for said in found["says"])


def test_shields_do_what_they_say() -> None:
    gradient = torch.randn(2000, generator=COINS.child("gradient").fast())
    shields = {shield.label: shield for shield in SHIELDS}

    def done(shield: Shield) -> Tensor:
        return shield.done(gradient, COINS.child("done", shield.label))

    assert torch.equal(done(shields["FedAvg"]), gradient)
    for share, label in ((0.7, "pruning 70%"), (0.9, "pruning 90%"), (0.99, "pruning 99%")):
        assert float((done(shields[label]) == 0).double().mean()) == pytest.approx(share, abs=1e-3)
    kept = gradient * CLIP / gradient.norm()
    for multiplier, label in ((2, "DP-SGD S"), (4, "DP-SGD M"), (8, "DP-SGD L")):
        noise = (done(shields[label]) - kept).std()
        assert float(noise) == pytest.approx(multiplier * CLIP / 64, rel=0.1)


def test_the_rule_from_parameters() -> None:
    found = run(parameter_search.FIGURES[0])
    rows = found["rows"]
    assert len({tuple(key for key in row if not key.startswith("_")) for row in rows}) == 1
    whole = [row for row in rows if row["attack"] == "weight matching"]
    assert len(whole) == 3
    assert all(row["_recovered"]["low"] >= 0.99 for row in whole)
    blind = next(row for row in rows if row["attack"].startswith("no view") and row["index_error"])
    assert blind["_error"]["mean"] == pytest.approx(261, abs=20)
    at = {row["attack"]: row for row in rows}
    assert float(at["matching, absolute"]["recovered"]) < 0.1
    assert float(at["matching, between rounds"]["recovered"]) >= 0.99
    assert at["5 records of single steps, in the unknown order"]["_exact"]["mean"] > 40
    seeds = next(row for row in rows if row["core_hours"] is not None)
    assert seeds["recovered"] == "1.0000"
    assert any("3 of 3 settings" in said for said in found["says"])


def test_a_turned_layout_is_shown_as_it_is_meant_and_counted_as_it_stands() -> None:
    true = np.random.default_rng(1).permutation(784)
    samples = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    upside_down = 783 - true
    # Pixel i of what was seen belongs at the place true[i].
    seen = samples.flatten(1)[:, torch.from_numpy(true)]
    row = parameter_search._layout("turned", upside_down, true, seen, samples)
    assert (row["recovered"], row["neighbours_kept"]) == ("0.0000", 1.0)
    assert float(row["psnr"].split()[0]) > 90
    assert "counts in the layout as it stands" in parameter_search.FIGURES[0].reading


def test_puzzles_of_one_picture_and_of_many() -> None:
    found = run(patch_search.FIGURES[0])
    at = {(row["shuffle"], row["attack"]): row for row in found["rows"]}
    assert len(at) == 5
    assert at["patches", "12 pictures together"]["_seams"]["mean"] > 0.9
    assert at["patches and pixels", "one picture"]["_seams"]["mean"] < 0.4
    assert all(row["_chance"] < 0.3 and row["rules"] == 2 for row in found["rows"])
    assert len(found["says"]) == 2
