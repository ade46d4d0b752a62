"""What DP-SGD guarantees a record, and what it does not: the number of records, and a record that lies in others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from croupier.cli import main
from croupier.core.coins import Coins
from croupier.engine.job.run import run
from croupier.errors import SpecError
from croupier.learn.augment import InstaHide
from croupier.learn.data import TensorRecords
from croupier.learn.datasets import Digits, Fashion
from croupier.learn.dp_fit import DpSgd
from croupier.learn.flat import FlatNet
from croupier.learn.models import Perceptron
from croupier.learn.private import train_privately
from croupier.outlook import explain, plan
from croupier.spec import load

FIT = DpSgd(lr=0.1, batch=32, noise=4.0)
NOISED: dict[str, Any] = {"task.fit": {"use": "dp-sgd", "batch": 32, "noise": 4.0}}
UNCOVERED = "The number of records, which travels too (weights = {!r}), is not covered"


def records() -> TensorRecords:
    draw = torch.Generator().manual_seed(1)
    return TensorRecords(torch.rand(65, 64, generator=draw), torch.randint(10, (65,), generator=draw))


def lengths(shard: TensorRecords, seeds: range) -> list[float]:
    """How far one participation moves the weights, once for every seed."""
    found = []
    for seed in seeds:
        with Coins.from_seed(0).ambient():
            net = FlatNet(Perceptron((64, 16, 10)))
        before = net.weights.clone()
        train_privately(net, "classify", FIT, shard, Coins.from_seed(seed), lambda inputs: inputs)
        found.append(float((net.weights - before).norm()))
    return found


def test_the_number_of_records_is_outside_the_guarantee() -> None:
    """A record more is another step, which an update's length shows every time: no epsilon can be printed for that."""
    whole = records()
    fewer = whole.take(torch.arange(64))
    assert (FIT.steps(64), FIT.steps(65)) == (2, 3)
    assert max(lengths(fewer, range(20))) < min(lengths(whole, range(20, 40)))


def test_a_record_that_counts_for_nothing_leaves_steps_rate_and_length_as_they_were() -> None:
    """The neighbours that are compared: 65 records, and the same with one that has no gradient."""
    whole = records()
    x, y = whole.batch(torch.arange(65))
    x[64] = torch.nan
    left_out = TensorRecords(x, y)
    assert len(left_out) == len(whole)
    one, other = lengths(whole, range(20)), lengths(left_out, range(20, 40))
    assert max(min(one), min(other)) < min(max(one), max(other))
    # The same coins: without the record the client's noise and its other records are what they were.
    alike = [abs(a - b) / a for a, b in zip(one, lengths(left_out, range(20)), strict=True)]
    assert max(alike) < 0.05


@pytest.mark.parametrize("weights", ["uniform", "open", "slot"])
def test_explain_says_that_the_number_of_records_is_not_covered(weights: str) -> None:
    sets = NOISED | {"protocol.encode.weights": weights} | ({"protocol.encode.cap": 500} if weights == "slot" else {})
    said = explain("digits", sets=sets).differential_privacy
    assert "one record of one client is left out of all its sums" in said
    assert "how many records the client has stays the same, and is public. Not covered: that number" in said
    assert "added or" not in said
    assert (UNCOVERED.format(weights) in said) == (weights != "uniform")


def test_both_kinds_of_noise_say_it_once() -> None:
    local = {"protocol.privacy": {"use": "gaussian", "clip": 1.0, "sigma": 4.0}, "protocol.encode.form": "delta"}
    said = explain("digits", sets=NOISED | local | {"protocol.encode.weights": "open"}).differential_privacy
    assert said.index("The unit is a record") < said.index("Besides, unit: a client") < said.index("travels too")
    assert said.count("travels too") == 1
    assert "travels too" not in explain("digits", sets={"protocol.encode.weights": "open"}).differential_privacy


def test_what_travels_as_it_is_costs_a_record_more_than_any_epsilon(tmp_path: Path) -> None:
    """Where records are sent as probes a run and a plan print no epsilon of a record, like `explain`."""
    sets = {
        **NOISED, "federation.rounds": 1, "protocol.aggregate.probes_from": "samples",
        "protocol.encode.samples": True,
    }  # fmt: skip
    assert explain("tazza", sets=sets).differential_privacy.startswith("no differential privacy is claimed")
    found = plan("tazza", sets=sets, seed=1)
    assert found.epsilon == ()
    assert found.privacy.startswith("no differential privacy is claimed")
    done = run("tazza", sets=sets, out=tmp_path / "run", seed=1)
    assert "record" not in done.final
    assert "record" not in done.summary


def test_a_record_that_is_blended_into_others_is_refused() -> None:
    same = {"task.augment": {"use": "instahide", "k": 2, "public": "digits"}}
    with pytest.raises(SpecError, match=r"blends pictures of the same data \('digits'\).*task\.augment\.public"):
        load("digits", NOISED | same)
    assert load("digits", same).task.fit.private is None
    for harmless in ({"task.augment.k": 1}, {"task.fit.noise": 0.0}):
        load("digits", NOISED | same | harmless)
    assert InstaHide(k=2, public=Digits()).mixes(Digits())
    assert not InstaHide(k=2, public=Fashion()).mixes(Digits())


def test_a_plan_at_a_shell_says_both_units(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "both.toml").write_text(
        'protocol = {privacy = {use = "gaussian", clip = 1, sigma = 4}, encode = {form = "delta"}}\n'
        'task.fit = {use = "dp-sgd", batch = 32, noise = 4.0}\n'
    )
    monkeypatch.setattr(sys, "argv", ["croupier", "plan", "both.toml"])
    with pytest.raises(SystemExit):
        main()
    flat = " ".join(capsys.readouterr().out.split())
    assert "unit: client; its update of a round is replaced by any other" in flat
    assert "unit: record; one record of one client is left out of all its sums" in flat
    assert "stays the same, and is public" in flat
