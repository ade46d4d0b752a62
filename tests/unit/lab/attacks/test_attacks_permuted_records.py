"""Records of single steps under a permutation, as a server sees them that knows nothing, matches, or is told."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from tests import zoo

from croupier.audit.attacked_training import SeededTask
from croupier.audit.attacks.permutation import unmoved
from croupier.audit.permuted_run import PermutedRun
from croupier.audit.questions.permutation import onlooker
from croupier.audit.setting import Depth, setting_of
from croupier.core.coins import Coins
from croupier.encode.hidden import HiddenUnits
from croupier.engine.local import Local
from croupier.errors import SpecError
from croupier.learn.likeness import like
from croupier.spec import load
from croupier_lab.attacks.permuted_records import PermutedReader, over_all_runs, steps_of

SMALL = ["task.split.clients=6", "federation.cohort=3", "task.fit.epochs=1", "task.model.hidden=[16]", "run.workers=1"]
SPEC = load("tazza", SMALL)
SETTING = setting_of(SPEC)


def reader(seed: int = 0, spec: Any = SPEC, **given: Any) -> PermutedReader:
    pipeline = spec.protocol.model_copy(update={"encode": HiddenUnits(**given)}) if given else spec.protocol
    run = PermutedRun(SeededTask(setting_of(spec), seed), pipeline, Local())
    return PermutedReader(run, Depth(rounds=2, uploads=1), onlooker(run))


@cache
def found(first: str) -> list[dict[str, Any]]:
    return over_all_runs([reader(seed, first=first).lines() for seed in (0, 1)])


def psnr(first: str, knows: str, read: str = "as it lies", moment: str = "first model") -> float:
    (line,) = [one for one in found(first) if (one["knows"], one["read"], one["moment"]) == (knows, read, moment)]
    assert line["records"] == 6
    return float(line["psnr"]["rate"])


@pytest.mark.parametrize("moment", ["first model", "trained model"])
def test_inversion_tells_what_the_rule_was_worth(moment: str) -> None:
    prior = psnr("open", "prior", moment=moment)
    assert psnr("open", "nothing", moment=moment) < prior
    assert psnr("open", "matched", moment=moment) > 30
    assert psnr("clients", "told", moment=moment) > 30
    assert psnr("clients", "relative", moment=moment) < prior
    assert psnr("clients", "relative", "in the unknown order", moment) > 30


def test_without_rules_an_upload_is_read_as_it_lies() -> None:
    one = reader()
    run = one.run
    steps = steps_of(run, Coins.from_seed(3))
    (seen,) = run.seen(run.played(1, fit=steps))
    sent, still = seen.uploads[0], unmoved(run.symmetry)
    lies = one.record(sent.model, sent.vector, (None, None), Coins.from_seed(1))
    assert torch.equal(lies, one.record(sent.model, sent.vector, (still, still), Coins.from_seed(1)))
    x = steps.drawn[run.ground.made.task.shards[sent.client]]
    moved = run.symmetry.permute_inputs(x, run.truth(seen.frame))
    assert like(lies, moved, None)["psnr"] > 40


def test_differences_are_read_as_well_as_weights() -> None:
    sets = ["protocol.aggregate=mean", "protocol.encode.kept=true", "protocol.encode.form=delta"]
    lines = reader(0, load("tazza", [*SMALL, *sets])).lines()
    by = {(one["knows"], one["read"]): one["psnr"] for one in lines if one["moment"] == "first model"}
    assert by["told", "as it lies"] > 40
    assert by["relative", "in the unknown order"] > 40


def test_what_training_does_not_show_is_refused() -> None:
    one = reader()
    made = one.run.ground.made
    one.run.ground.__dict__["made"] = replace(made, task=replace(made.task, fit=lambda _: []))
    with pytest.raises(SpecError, match="quantities"):
        steps_of(one.run, Coins.from_seed(0))


# What a server does with single steps of a network: reads them off, searches, or why it does nothing.
READS = {
    "bare_unbiased": "no biases, and two classes",
    "head_first": "read off",
    "unbiased": "searched",
    "conv": "searched",
    "conv_max": "no layer gives each logit",
    "normed": "read off",
    "unused": "read off",
    "embedding": "no gradient in its inputs",
    "frozen_head": "read off",
}
DATA = {"bare_unbiased": "two", "conv": "pictures", "conv_max": "pictures", "unused": "two", "embedding": "words"}


@pytest.mark.parametrize("model", READS)
def test_networks_of_every_shape_are_read_searched_or_refused(model: str) -> None:
    data, net = getattr(zoo, DATA.get(model, "table")), getattr(zoo, model)
    task = {"data": {"use": "own", "make": data}, "model": {"use": "own", "make": net}}
    spec = load("tazza", {
        **{f"task.{name}": value for name, value in task.items()}, "task.split": {"use": "iid", "clients": 4},
        "federation.cohort": 4, "task.fit.epochs": 1, "federation.rounds": 1, "run.workers": 1,
    })  # fmt: skip
    run = PermutedRun(SeededTask(setting_of(spec), 0), spec.protocol, Local())
    one = PermutedReader(run, Depth(rounds=1, uploads=1, searched=1, steps=2), onlooker(run))
    if READS[model] not in ("read off", "searched"):
        with pytest.raises(SpecError, match=READS[model]):
            one.lines()
        return
    told = [line for line in one.lines() if (line["knows"], line["moment"]) == ("told", "first model")]
    assert told
    # Two steps of a search find nothing; what is read off is the record itself.
    assert all((line["psnr"] > 30) is (READS[model] == "read off") for line in told)
