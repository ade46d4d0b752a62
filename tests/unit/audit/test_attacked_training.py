"""Training under attack on small data: purity, what honest clients receive, attackers that sleep or are copies."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from croupier.aggregate.aggregator import Aggregator
from croupier.aggregate.clusters import Clusters
from croupier.aggregate.mean import Mean
from croupier.audit.attacked_training import served_models
from croupier.audit.poison import LabelFlip, NoiseInjection, Scaling
from croupier.audit.setting import Setting
from croupier.core.coins import Coins
from croupier.core.update import Model
from croupier.encode.hidden import HiddenUnits
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.errors import SpecError
from croupier.learn.data import TensorRecords
from croupier.learn.datasets import Digits
from croupier.learn.fit import Adam
from croupier.learn.models import Mlp
from croupier.learn.root import Root
from croupier.learn.split import Iid
from croupier.pipeline import Pipeline
from croupier_lab.attacks.cluster_purity import purity, purity_by_round, purity_of_labels
from croupier_lab.attacks.clustered_training import ClusterOutcome, ClusterRound, ClusterTask
from croupier_lab.attacks.poisoning import MinMax
from croupier_lab.attacks.rules_under_attack import Probes, RuleUnderAttack, Samples, on_clear_updates, run

SETTING = Setting(
    Digits(), Iid(clients=12), Mlp(hidden=(32,)), Adam(lr=0.01, epochs=3, batch=16), Federation(rounds=3),
    root=Root(records=50), together=1,
)  # fmt: skip
SEEDED = ClusterTask(SETTING, 0)
BAD = frozenset("xyz")


def play(rule: Aggregator, *given: object, **more: object) -> ClusterOutcome:
    return RuleUnderAttack("rule", rule, *given, **more).train(SEEDED, Local())  # type: ignore[arg-type]


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
    assert served_models(models, ["a", "b", "c"]) == {"a": 0, "b": 1, "c": 1}
    assert served_models([Model(zeros)], ["a"]) == {"a": 0}


def test_a_quarter_is_malicious_drawn_by_the_seed() -> None:
    assert len(SEEDED.malicious) == 3
    assert SEEDED.malicious == ClusterTask(SETTING, 0).malicious
    assert len({ClusterTask(SETTING, seed).malicious for seed in range(4)}) > 1


def test_noise_is_kept_apart_and_breaks_the_mean() -> None:
    attack = NoiseInjection(scale=1.0)
    kept, broken, honest = play(Clusters(), attack), play(Mean(), attack), play(Mean())
    assert all(one.all == 1 for one in purity_by_round(kept))
    assert kept.received > broken.received + 0.2
    assert kept.received > honest.received - 0.1
    assert broken.by_round == ()
    assert purity_of_labels(broken) is None
    assert broken.received == broken.weighted == broken.clusters
    end = purity_of_labels(kept)
    assert end is not None
    assert end.all == 1
    assert set(kept.by_round[-1].labels) == set(SEEDED.made.task.enrolled)
    assert kept.success is None


def test_label_flip_is_kept_apart() -> None:
    ended = play(Clusters(), LabelFlip())
    assert min(one.all for one in purity_by_round(ended)) >= 0.9
    assert min(one.together or 0 for one in purity_by_round(ended)) >= 0.8


def test_a_backdoor_is_scored_by_what_honest_clients_receive() -> None:
    attack = Scaling(corner="upper-left", factor=4.0)
    replaced, kept = play(Mean(), attack), play(Clusters(), attack)
    assert replaced.success is not None
    assert kept.success is not None
    assert replaced.success > 0.8
    assert kept.success < 0.4


def test_copies_are_one_cluster_and_nobody_else() -> None:
    ended = play(Clusters(), MinMax(along="sign"))
    bad = set(SEEDED.malicious)
    for one in ended.by_round:
        (theirs,) = [set(group) for group in one.groups if bad & set(group)]
        assert bad <= theirs


def test_sleepers_are_honest_first() -> None:
    attack = NoiseInjection(scale=1.0)
    late, never = play(Clusters(), attack, sleeps=2), play(Clusters())
    assert late.by_round[:2] == never.by_round[:2]
    assert late.by_round[2] != never.by_round[2]
    assert len(late.by_round) == SETTING.plan.rounds
    assert (len(purity_by_round(late, since=2)), len(purity_by_round(never))) == (1, 3)
    assert play(Clusters(), attack, sleeps=9).by_round == never.by_round


def test_who_leaves_a_cluster_loses_its_label_only_where_groups_part() -> None:
    attack = NoiseInjection(scale=1.0)
    part, join = (play(Clusters(split=split), attack, sleeps=2) for split in ("part", "join"))
    bad = SEEDED.malicious
    honest = [name for name in SEEDED.made.task.enrolled if name not in bad]
    labels = {"part": part.by_round[-1].labels, "join": join.by_round[-1].labels}
    assert {labels["part"][name] for name in bad} & {labels["part"][name] for name in honest} == set()
    # As the algorithm has it, noise joins the honest once more, and their model is what it was not before.
    assert {labels["join"][name] for name in bad} & {labels["join"][name] for name in honest}
    assert part.received > join.received + 0.1


def test_samples_stand_in_for_the_probes_and_are_the_clients_own() -> None:
    rows = {f"s{at}": TensorRecords(torch.full((3, 4), float(at)), torch.zeros(3, dtype=torch.long)) for at in range(3)}
    samples = Samples(lambda jobs: [], lambda vector, inputs: inputs, rows, Coins.from_seed(0))
    samples([(None, name, Coins.from_seed(at)) for at, name in enumerate(rows)])
    asked = samples.answer(torch.zeros(1), torch.ones(9, 4))
    assert torch.equal(asked, torch.arange(3.0).unsqueeze(1).expand(3, 4))
    ended = play(Clusters(), NoiseInjection(scale=1.0), probes="samples")
    assert all(one.all == 1 for one in purity_by_round(ended))


def test_runs_come_arm_by_arm_and_seed_by_seed() -> None:
    heard: list[str] = []
    arms = [RuleUnderAttack("mean", Mean()), RuleUnderAttack("clusters", Clusters())]
    short = replace(SETTING, plan=Federation(rounds=1))
    found = run(short, arms, [0, 1], Local(), heard.append)
    assert [[bool(one.by_round) for one in row] for row in found] == [[False, False], [True, True]]
    assert [one.malicious for one in found[0]] == [one.malicious for one in found[1]]
    assert [said.split(",")[0] for said in heard] == ["seed 0", "seed 0", "seed 1", "seed 1"]
    with pytest.raises(SpecError, match="share"):
        replace(SETTING, share=1.0)


def test_rounds_know_their_labels() -> None:
    ended = ClusterOutcome(
        ("x",),
        0.5,
        2,
        weighted=0.5,
        clusters=0.5,
        by_round=(ClusterRound(0, (("a", "x"),), {"a": 0, "x": 0, "b": 1}),),
    )
    end = purity_of_labels(ended)
    assert end is not None
    assert math.isclose(end.all, 2 / 3)


def test_the_malicious_may_show_samples_with_their_triggers() -> None:
    mark = Scaling(share=1.0, value=7.0, factor=1.0)
    shown = {}
    kinds: tuple[Probes, ...] = ("samples", "trained")
    for probes in kinds:
        seeded, arm = ClusterTask(SETTING, 0), RuleUnderAttack("clusters", Clusters(), mark, probes=probes)
        task, _ = arm.attacked(seeded, arm.asked(seeded))
        assert isinstance(task.fit, Samples)
        bad = {task.shards[name] for name in seeded.malicious}
        shown[probes] = {shard: float(rows.x.max()) >= 7.0 for shard, rows in task.fit.held.items()}
        assert shown[probes] == {shard: probes == "trained" and shard in bad for shard in shown[probes]}
    assert any(shown["trained"].values())


def test_what_is_remembered_changes_nothing() -> None:
    seeded = ClusterTask(SETTING, 0)
    mark, many = (Scaling(corner="upper-left", factor=factor) for factor in (1.0, 4.0))
    for attack in (None, LabelFlip(), NoiseInjection(scale=0.25), mark, many):
        first, again = (seeded.train(on_clear_updates(Mean()), Local(), attack) for _ in range(2))
        assert first == again == play(Mean(), attack)
    # Who adds noise trains as everybody does, and who sends an update many times over as one who sends it once.
    assert set(seeded.remembered) == {None, LabelFlip(), Scaling(corner="upper-left", factor=None)}


def test_a_trigger_is_measured_though_nobody_mounts_it() -> None:
    mark = Scaling(corner="upper-left", factor=4.0)
    honest = SEEDED.train(on_clear_updates(Mean()), Local(), trigger=mark)
    assert honest.success is not None
    assert honest.success < 0.3
    assert honest.received == play(Mean()).received


def test_a_whole_protocol_is_attacked_as_it_is() -> None:
    seeded = ClusterTask(replace(SETTING, plan=Federation(rounds=2)), 0)
    hidden = Pipeline(encode=HiddenUnits(first="open", weights="uniform"), aggregate=Mean())
    clear, whole = (seeded.train(each, Local(), LabelFlip()) for each in (on_clear_updates(Mean()), hidden))
    # Permuted uploads have the same mean, and are scored in plain order.
    assert whole.received == pytest.approx(clear.received, abs=0.02)
    assert whole.accepted == clear.accepted == 2 * len(seeded.malicious)
