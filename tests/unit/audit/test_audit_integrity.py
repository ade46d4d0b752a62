"""The integrity experiment on small data: purity, what honest clients receive, attackers that sleep or are copies."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from html import escape, unescape
from typing import Any

import pytest
import torch

from croupier import soundness
from croupier.aggregate.aggregator import Aggregator
from croupier.aggregate.clusters import Clusters
from croupier.aggregate.mean import Mean
from croupier.audit.craft import MinMax
from croupier.audit.integrity import Arm, Ended, Ground, Samples, Setting, Turn, _served, run
from croupier.audit.poison import LabelFlip, NoiseInjection, Scaling
from croupier.audit.purity import purity
from croupier.audit.report.clusters import GREY, cluster_map, purity_lines
from croupier.audit.secrecy import Depth
from croupier.core.coins import Coins
from croupier.core.update import Model
from croupier.errors import SpecError
from croupier.federation import Federation
from croupier.learn.data import Rows
from croupier.learn.datasets import Digits
from croupier.learn.fit import Adam
from croupier.learn.models import Mlp
from croupier.learn.root import Root
from croupier.learn.split import Iid
from croupier.runtime.local import Local
from croupier.spec import load

SETTING = Setting(
    Digits(), Iid(clients=12), Mlp(hidden=(32,)), Adam(lr=0.01, epochs=3, batch=16), Federation(rounds=3),
    root=Root(records=50),
)  # fmt: skip
GROUND = Ground(SETTING, 0)
BAD = frozenset("xyz")


def play(rule: Aggregator, *given: object, **more: object) -> Ended:
    return GROUND.play(Arm("rule", rule, *given, **more), Local())  # type: ignore[arg-type]


def test_purity_counts_clients_alone_and_tells_how_many_there_are() -> None:
    apart = purity([["a"], ["b"], ["x"], ["y"]], BAD)
    assert (apart.all, apart.several, apart.one, apart.groups, apart.alone, apart.together) == (1, None, 0.5, 4, 4, 0.5)
    mixed = purity([["a", "b", "c", "x"], ["y"], ["d", "z"]], BAD)
    assert (mixed.all, mixed.several) == (5 / 7, 4 / 6)
    assert (mixed.groups, mixed.alone, mixed.together) == (3, 1, 3 / 4)
    assert purity([["x", "y"]], BAD).together is None


def test_who_has_no_cluster_gets_the_largest_ones_model() -> None:
    zeros = torch.zeros(2)
    models = [Model(zeros, recipients=("a",)), Model(zeros, recipients=("b", "x"))]
    assert _served(models, ["a", "b", "c"]) == {"a": 0, "b": 1, "c": 1}
    assert _served([Model(zeros)], ["a"]) == {"a": 0}


def test_a_quarter_is_malicious_drawn_by_the_seed() -> None:
    assert len(GROUND.malicious) == 3
    assert GROUND.malicious == Ground(SETTING, 0).malicious
    assert len({Ground(SETTING, seed).malicious for seed in range(4)}) > 1


def test_noise_is_kept_apart_and_breaks_the_mean() -> None:
    attack = NoiseInjection(scale=1.0)
    kept, broken, honest = play(Clusters(), attack), play(Mean(), attack), play(Mean())
    assert all(one.all == 1 for one in kept.purities())
    assert kept.received > broken.received + 0.2
    assert kept.received > honest.received - 0.1
    assert broken.turns == ()
    assert broken.labelled() is None
    assert broken.received == broken.weighted == broken.clusters
    end = kept.labelled()
    assert end is not None
    assert end.all == 1
    assert set(kept.turns[-1].labels) == set(GROUND.made.task.enrolled)
    assert kept.success is None


def test_label_flip_is_kept_apart() -> None:
    ended = play(Clusters(), LabelFlip())
    assert min(one.all for one in ended.purities()) >= 0.9
    assert min(one.together or 0 for one in ended.purities()) >= 0.8


def test_a_backdoor_is_scored_by_what_honest_clients_receive() -> None:
    attack = Scaling(corner="upper-left", factor=4.0)
    replaced, kept = play(Mean(), attack), play(Clusters(), attack)
    assert replaced.success is not None
    assert kept.success is not None
    assert replaced.success > 0.8
    assert kept.success < 0.4


def test_copies_are_one_cluster_and_nobody_else() -> None:
    ended = play(Clusters(), MinMax(along="sign"))
    bad = set(GROUND.malicious)
    for turn in ended.turns:
        (theirs,) = [set(group) for group in turn.groups if bad & set(group)]
        assert bad <= theirs


def test_sleepers_are_honest_first() -> None:
    attack = NoiseInjection(scale=1.0)
    late, never = play(Clusters(), attack, sleeps=2), play(Clusters())
    assert late.turns[:2] == never.turns[:2]
    assert late.turns[2] != never.turns[2]
    assert len(late.turns) == SETTING.plan.rounds
    assert (len(late.purities()), len(never.purities())) == (1, 3)
    assert play(Clusters(), attack, sleeps=9).turns == never.turns


def test_who_leaves_a_cluster_loses_its_label_only_where_groups_part() -> None:
    attack = NoiseInjection(scale=1.0)
    part, join = (play(Clusters(split=split), attack, sleeps=2) for split in ("part", "join"))
    bad = GROUND.malicious
    honest = [name for name in GROUND.made.task.enrolled if name not in bad]
    assert {part.turns[-1].labels[name] for name in bad} & {part.turns[-1].labels[name] for name in honest} == set()
    # As the algorithm has it, noise joins the honest once more, and their model is what it was not before.
    assert {join.turns[-1].labels[name] for name in bad} & {join.turns[-1].labels[name] for name in honest}
    assert part.received > join.received + 0.1


def test_samples_stand_in_for_the_probes_and_are_the_clients_own() -> None:
    rows = {f"s{at}": Rows(torch.full((3, 4), float(at)), torch.zeros(3, dtype=torch.long)) for at in range(3)}
    samples = Samples(lambda jobs: [], lambda vector, inputs: inputs, rows, Coins.from_seed(0))
    samples([(None, name, Coins.from_seed(at)) for at, name in enumerate(rows)])
    asked = samples.answer(torch.zeros(1), torch.ones(9, 4))
    assert torch.equal(asked, torch.arange(3.0).unsqueeze(1).expand(3, 4))
    ended = play(Clusters(), NoiseInjection(scale=1.0), probes="samples")
    assert all(one.all == 1 for one in ended.purities())


def test_runs_come_arm_by_arm_and_seed_by_seed() -> None:
    heard: list[str] = []
    arms = [Arm("mean", Mean()), Arm("clusters", Clusters())]
    short = replace(SETTING, plan=Federation(rounds=1))
    found = run(short, arms, [0, 1], Local(), heard.append)
    assert [[bool(one.turns) for one in row] for row in found] == [[False, False], [True, True]]
    assert [one.malicious for one in found[0]] == [one.malicious for one in found[1]]
    assert [said.split(",")[0] for said in heard] == ["seed 0", "seed 0", "seed 1", "seed 1"]
    with pytest.raises(SpecError, match="share"):
        replace(SETTING, share=1.0)


def test_the_map_has_a_square_for_everybody_present_and_grey_for_the_lonely() -> None:
    rounds = [{"a": 0, "b": 0, "x": 1}, {"a": 0, "x": 1}]
    drawn = cluster_map(rounds, ["a", "b"], ["x"], "a < b")
    assert drawn.count("<rect") == 5
    assert drawn.count(f'fill="{GREY}"') == 2
    assert "a &lt; b" in drawn
    assert "cluster 1" in drawn
    points: list[dict[str, Any]] = [{"rate": 0.9, "low": 0.8, "high": 1.0, "one": 0.75}, {"rate": None}]
    lines = purity_lines({"one": points, "two": points[:1]}, 0.95, "purity")
    assert lines.count("goal 0.95") == 1
    assert lines.count("<circle") == 2


def test_findings_are_plain_and_the_page_holds_them() -> None:
    small = [
        "task.data.use=digits", "task.split.clients=12", "task.model.hidden=[16]", "federation.rounds=2",
        "task.fit.epochs=1", "task.root.records=50",
    ]  # fmt: skip
    found = soundness.examine(load("tazza-mnist", small), seeds=2, abreast=1, depth=Depth(2, 1, 20))
    plain = found.plain
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert (plain["clients"], plain["malicious"], plain["cohort"]) == (12, 3, 10)
    assert [row["rule"] for row in plain["rows"][:6]] == list(soundness.rules_of(load("tazza-mnist"), 10))
    assert len(plain["rows"]) == 30
    assert len(plain["maps"]) == 4
    own = [row for row in plain["rows"] if row["rule"] == "Clusters" and row["attack"] != "no attack"]
    assert all(len(row["rounds"]) == 2 and row["purity"]["all"]["low"] <= row["purity"]["all"]["high"] for row in own)
    assert all(row["success"]["rate"] is None for row in plain["rows"] if "flip" in row["attack"])
    more = {**plain, "more": [{"title": "What <else> there is", "paragraphs": ["one"]}]}
    page = type(found)(more).page()
    assert "What &lt;else&gt; there is" in page
    assert page.count("<svg") == 5
    assert "The goal of 95 % is" in page
    verdict = page.partition("</header>")[0]
    assert all(escape(said) in verdict for said in plain["verdict"])
    for title in ("How much of each permutation is recovered?", "What do single steps give away?", "breaks the rule"):
        assert title in page
    assert "img-src data:" in unescape(page)
    assert page.count("data:image/png;base64,") == sum(
        len(strip["pictures"]) for strip in plain["confidentiality"]["pictures"]
    )


def test_what_cannot_be_audited_is_refused() -> None:
    with pytest.raises(SpecError, match="clusters"):
        soundness.examine("digits")
    with pytest.raises(SpecError, match="seeds"):
        soundness.examine("tazza-mnist", seeds=1)


def test_turns_know_their_labels() -> None:
    ended = Ended(("x",), 3, 0.5, 0.5, 0.5, 2, turns=(Turn(0, (("a", "x"),), {"a": 0, "x": 0, "b": 1}),))
    end = ended.labelled()
    assert end is not None
    assert math.isclose(end.all, 2 / 3)


def test_the_malicious_may_show_samples_with_their_triggers() -> None:
    mark = Scaling(share=1.0, value=7.0, factor=1.0)
    shown = {}
    for probes in ("samples", "trained"):
        ground = Ground(SETTING, 0)
        task = ground._asked(Arm("clusters", Clusters(), mark, probes=probes))
        task, _ = ground._attacked(Arm("clusters", Clusters(), mark, probes=probes), task)
        assert isinstance(task.fit, Samples)
        bad = {task.shards[name] for name in ground.malicious}
        shown[probes] = {shard: float(rows.x.max()) >= 7.0 for shard, rows in task.fit.held.items()}
        assert shown[probes] == {shard: probes == "trained" and shard in bad for shard in shown[probes]}
    assert any(shown["trained"].values())
