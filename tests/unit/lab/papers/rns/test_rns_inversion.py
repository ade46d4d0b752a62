"""Figure 8: whole at every scale, plain data, priors beside every score, and nothing found that was not seen."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import torch

from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.datasets import Cifar10
from croupier.learn.models import DlgLeNet
from croupier.learn.png import png
from croupier_lab.attacks.gradient_search import DEFENCES, Dlg, Inverting
from croupier_lab.papers.rns import inversion
from croupier_lab.papers.rns.inversion import ONE, figure8
from croupier_lab.papers.rns.inversion_trials import ATTEMPTS, PRINTED, PUBLIC, InversionTrial
from croupier_lab.papers.shared.figure import Scale


def pictures() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    train, test = (
        TensorRecords(torch.rand(60, 3, 32, 32, generator=generator), torch.randint(10, (60,), generator=generator))
        for _ in range(2)
    )
    return Dataset("cifar10", "classify", 10, train, test, "none", "made up", labels=train.y)


TINY = (
    InversionTrial("a", DlgLeNet(), Dlg(steps=3), 2, 3, 8),
    InversionTrial("b", DlgLeNet(), Inverting(steps=3), 2, 3, 8, batch=2),
)


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cifar10, "load", lambda *_: pictures())
        patch.setattr(inversion, "ATTEMPTS", {"smoke": TINY})
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def got(tiny: None) -> dict[str, Any]:
    return figure8("smoke", None)


def test_it_is_plain_data_and_the_same_from_the_same_seed(got: dict[str, Any]) -> None:
    assert json.dumps(got, allow_nan=False) == json.dumps(figure8("smoke", None), allow_nan=False)
    assert got["cases"] != figure8("smoke", None, seed=1)["cases"]


def test_every_row_has_intervals_and_priors(got: dict[str, Any]) -> None:
    for case, size in zip(got["cases"], (1, 2), strict=True):
        rows = {row["defence"]: row for row in case["rows"]}
        assert list(rows) == [*DEFENCES, ONE]
        for row in rows.values():
            for scores in (row, *row["prior"].values()):
                assert all(
                    scores[name]["low"] <= scores[name]["mean"] <= scores[name]["high"] for name in ("mse", "ssim")
                )
            assert set(row["psnr_above_prior"]) == set(row["prior"]) == {"mean picture", "public pictures"}
        assert [rows[name]["records_assumed"] for name in rows] == [size, size, size, 3 * size, 3 * size, size]
        assert rows["sum"]["pixels_sought"] == 3 * size * 3 * 64
        assert rows["none"]["numbers_seen"] == sum(p.numel() for p in DlgLeNet().build(small()).parameters())


def small() -> Dataset:
    rows = TensorRecords(torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.int64))
    return Dataset("small", "classify", 10, rows, rows, "", "")


def test_names_are_all_that_a_shuffle_of_models_takes(got: dict[str, Any]) -> None:
    rows = {row["defence"]: row for row in got["cases"][0]["rows"]}
    assert rows["none"]["attack_loss_median"] == rows["model shuffle"]["attack_loss_median"]
    assert (rows["none"]["named"], rows["model shuffle"]["named"]) == (1, pytest.approx(1 / 3))
    same = ("mse", "psnr", "ssim", "prior")
    assert [rows["parameter shuffle"][name] for name in same] == [rows["sum"][name] for name in same]


def test_the_papers_numbers_stand_beside_the_papers_attack_alone(got: dict[str, Any]) -> None:
    first, second = got["cases"]
    assert {row["defence"]: row["printed"] for row in first["rows"] if row["printed"]} == PRINTED
    assert not any(row["printed"] for row in second["rows"])
    assert PRINTED["none"]["loss"] == 3e-4
    assert PRINTED["sum"]["loss"] == 0.98


def test_pictures_are_few_and_whole(got: dict[str, Any]) -> None:
    for case in got["cases"]:
        assert 2 <= len(case["pictures"]) <= 8
        assert case["pictures"][0]["what"] == "true"


def test_a_picture_as_a_file() -> None:
    picture = torch.tensor([[[0.0, 1.0]], [[1.0, 0.0]], [[0.2, 2.0]]])
    body = base64.b64decode(png(picture))
    assert body[:8] == b"\x89PNG\r\n\x1a\n"
    assert body[16:29] == bytes([0, 0, 0, 2, 0, 0, 0, 1, 8, 2, 0, 0, 0])
    at = body.index(b"IDAT")
    size = int.from_bytes(body[at - 4 : at], "big")
    assert zlib.decompress(body[at + 4 : at + 4 + size]) == bytes([0, 0, 255, 51, 255, 0, 255])


@pytest.mark.parametrize("scale", get_args(Scale))
def test_every_scale_is_whole(scale: Scale) -> None:
    trials = ATTEMPTS[scale]
    assert len({trial.label for trial in trials}) == len(trials)
    for trial in trials:
        assert trial.targets >= 2
        assert trial.targets * trial.clients * trial.batch <= PUBLIC
        assert {"none", "sum"} <= set(trial.defences)
        assert 32 % trial.side == 0
