"""Poisoning attacks against vectors worked out by hand, and on the house's own loop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, tensor

from croupier.audit.attacked_training import with_malicious_clients
from croupier.audit.poison import LabelFlip, NoiseInjection, Poison, PoisonInputs, Scaling, backdoor_success
from croupier.core.coins import Coins
from croupier.core.part import Part
from croupier.core.update import Update
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.errors import ProtocolError, RangeError, SpecError
from croupier.learn.assemble import Assembled, Hardware, assemble
from croupier.learn.data import TensorRecords
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Iid
from croupier.pipeline import Pipeline
from croupier.privacy.local import LocalPrivacy, ParticipationCost
from croupier.systems import plain
from croupier_lab.attacks.poisoning import Copy, Dpfl, Mimic, MinMax, MinSum, RandomSigns, SignFlip
from croupier_lab.attacks.rule_poisoning import KrumAttack, TrimAttack

OWN = tensor([[3.0, -4.0], [0.0, 2.0]])
BENIGN = tensor([[1.0, -1.0], [2.0, -3.0], [4.0, 0.5]])
# Other tests' own attacks are not the house's.
NAMED = [part for key, part in sorted(Part.named.items()) if key[0] == "poison"]
EVERY = [part for part in NAMED if part.__module__.startswith(("croupier.", "croupier_lab."))]


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs(**more: Any) -> PoisonInputs:
    return PoisonInputs(**{"own": OWN, "benign": BENIGN, "clients": 5, **more})


def test_every_attack_is_known_by_name() -> None:
    assert [part.use for part in EVERY] == [
        "attack-dpfl", "copy-reference", "krum", "label-flip", "mimic", "min-max", "min-sum", "noise", "random-signs",
        "scaling", "sign-flip", "trim",
    ]  # fmt: skip


@pytest.mark.parametrize("part", EVERY, ids=[part.use for part in EVERY])
def test_no_attack_sees_more_than_it_claims(part: type[Poison], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows come out when what the attack does not know is something else, and they are left alone."""
    seen, craft = list[PoisonInputs](), part.craft

    def overheard(attack: Poison, given: PoisonInputs, drawn: torch.Generator) -> Tensor:
        seen.append(given)
        return craft(attack, given, drawn)

    monkeypatch.setattr(part, "craft", overheard)
    for attack in [part(), *([part.parse({"use": part.use, "knows": "own"})] if "knows" in part.model_fields else [])]:
        full = inputs(reference=tensor([1.0, -1.0]), sigma=0.1, clip=1.0)
        sent = attack(full, draw())
        assert (seen[-1].benign is None) == (attack.knowledge == "own")
        assert (seen[-1].reference is None) == (not attack.sees_reference)
        assert sent.shape == OWN.shape
        other = inputs(
            benign=BENIGN if attack.knowledge == "all" else 100 * torch.ones(3, 2),
            reference=tensor([1.0, -1.0]) if attack.sees_reference else tensor([-1.0, 1.0]), sigma=0.1, clip=1.0,
        )  # fmt: skip
        assert torch.equal(attack(other, draw()), sent)
        assert torch.equal(full.own, tensor([[3.0, -4.0], [0.0, 2.0]]))


def test_full_knowledge_must_be_given() -> None:
    with pytest.raises(ProtocolError, match="poison = 'krum' knows every honest update, but the inputs show none"):
        KrumAttack()(inputs(benign=None), draw())


def test_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RangeError, match="reference has 3 coordinates, but own has 2"):
        inputs(reference=torch.ones(3))
    with pytest.raises(RangeError, match="one row for each malicious client"):
        inputs(own=torch.zeros(0, 2))


def test_labels_are_mirrored_and_the_update_is_sent_as_it_is() -> None:
    records = TensorRecords(torch.zeros(4, 1), tensor([0, 1, 8, 9]))
    assert LabelFlip().change(records, 10, draw()).y.tolist() == [9, 8, 1, 0]
    assert records.y.tolist() == [0, 1, 8, 9]
    assert torch.equal(LabelFlip()(inputs(), draw()), OWN)


def test_a_backdoor_marks_a_share_of_the_records_and_is_scaled() -> None:
    attack = Scaling(share=0.5, target=7, side=2)
    records = TensorRecords(torch.zeros(6, 1, 4, 4), torch.arange(6))
    changed = attack.change(records, 10, draw())
    marked = changed.x.flatten(1).sum(1)
    assert sorted(marked.tolist()) == [0, 0, 0, 4, 4, 4]
    assert bool((changed.x[marked > 0][:, 0, 2:, 2:] == 1).all())
    assert changed.y[marked > 0].tolist() == [7, 7, 7]
    assert torch.equal(changed.y[marked == 0], records.y[marked == 0])
    assert torch.equal(attack(inputs(), draw()), 5 * OWN)
    assert torch.equal(Scaling(factor=3)(inputs(), draw()), 3 * OWN)
    assert attack.trigger(torch.zeros(1, 5)).tolist() == [[1, 0, 1, 0, 1]]
    with pytest.raises(SpecError, match=r"poison.target = 7: there are 4 classes"):
        attack.change(records, 4, draw())


def test_a_backdoor_is_scored_on_other_classes_only() -> None:
    assert backdoor_success(tensor([7, 7, 1, 7]), tensor([7, 1, 1, 2]), 7) == pytest.approx(2 / 3)
    with pytest.raises(RangeError, match="all records are of class 7"):
        backdoor_success(tensor([7]), tensor([7]), 7)


def test_signs_flipped_and_signs_at_random() -> None:
    assert torch.equal(SignFlip(factor=2)(inputs(), draw()), -2 * OWN)
    sent = RandomSigns()(inputs(own=OWN.repeat(1, 50), benign=None), draw())
    assert torch.allclose(sent.norm(dim=1), OWN.repeat(1, 50).norm(dim=1))
    assert torch.allclose(sent[0].abs(), sent[0, 0].abs())
    assert 20 < int((sent[0] > 0).sum()) < 80
    assert not torch.equal(sent[0].sign(), sent[1].sign())


def test_noise_is_added_or_stands_alone() -> None:
    wide = torch.full((2, 20_000), 3.0)
    added = NoiseInjection()(PoisonInputs(wide), draw())
    alone = NoiseInjection(scale=2, replaces=True)(PoisonInputs(wide), draw())
    assert float(added.mean()) == pytest.approx(3, abs=0.01)
    assert float(added.std()) == pytest.approx(0.25, rel=0.02)
    assert (float(alone.mean()), float(alone.std())) == pytest.approx((0, 2), abs=0.04)


def test_the_reference_is_copied_but_for_the_largest_coordinates() -> None:
    own = tensor([[3.0, 1.0, 0.5, 0.2], [0.1, 1.0, 0.0, 9.0]])
    ref = tensor([1.0, -1.0, -1.0, 1.0])
    sent = Copy(wrong=0.25)(PoisonInputs(own, reference=ref), draw())
    assert sent.sign().tolist() == [[-1, -1, -1, 1], [1, -1, -1, -1]]
    assert torch.allclose(sent.norm(dim=1), own.norm(dim=1))
    same = Copy(wrong=0.25, alike=True)(PoisonInputs(own, reference=ref), draw())
    assert same.sign().tolist() == [[1, -1, -1, -1]] * 2
    blind = Copy(wrong=0.25)(PoisonInputs(own), draw())
    assert blind.sign().tolist() == [[-1, 1, 1, 1], [1, 1, 1, -1]]
    random = Copy(wrong=0.5, choice="random")(PoisonInputs(own, reference=ref), draw())
    assert (random.sign() != ref).sum(1).tolist() == [2, 2]


def test_the_krum_attack_by_hand() -> None:
    """One coordinate; one attacker among five. Krum takes 1 of (1, 1, 1, 2, own 9), so s = 1.

    The bound: n - f - 2 = 2 nearest benign ones, least sum 0, plus the largest norm: 0/2 + 2. At 2 and at 1, 1/2, ...
    the honest ones lie closer together, so it is halved to the end.
    """
    benign = tensor([[1.0], [1.0], [1.0], [2.0]])
    sent = KrumAttack()(PoisonInputs(tensor([[9.0]]), benign, 5), draw())
    assert sent.tolist() == [[pytest.approx(-2 / 2**18)]]


def test_a_majority_has_its_way_with_krum() -> None:
    """Three attackers of five: their rows are alike, so the first lambda passes.

    Krum of all honest takes a 4; the two benign ones have no near ones to count, so the bound is 5 / sqrt(2).
    """
    benign = tensor([[3.0, -4.0], [3.0, -3.9]])
    sent = KrumAttack()(PoisonInputs(tensor([[3.0, -4.0]] * 3), benign, 5), draw())
    assert torch.allclose(sent, tensor([[-1.0, 1.0]] * 3) * 5 / math.sqrt(2))


def test_the_krum_attack_from_its_own_updates() -> None:
    """Stand-ins 2 and 4, s = 1. With one crafted row the bound is 0 + 4; there all three score by their nearest.

    -4: 36; 2 and 4: 4. -2: 16; ... down to no pass. With two crafted rows they are each other's nearest: 4 passes.
    """
    sent = KrumAttack(knows="own")(PoisonInputs(tensor([[2.0], [4.0]]), None, 9), draw())
    assert sent.tolist() == [[-4.0], [-4.0]]


def test_the_trim_attack_lies_beyond_the_extremes() -> None:
    """Columns: up with a positive minimum, up with a negative one, down with a positive maximum, a negative one."""
    benign = tensor([[1.0, 5.0, -5.0, -1.0], [3.0, -2.0, 2.0, -3.0]])
    sent = TrimAttack()(PoisonInputs(torch.zeros(500, 4), benign, 502), draw())
    low, high = tensor([0.5, -4.0, 2.0, -1.0]), tensor([1.0, -2.0, 4.0, -0.5])
    assert bool((sent >= low).all() & (sent <= high).all())
    assert torch.allclose(sent.amin(0), low, atol=0.03)
    assert torch.allclose(sent.amax(0), high, atol=0.03)


def test_the_trim_attack_from_its_own_updates() -> None:
    """Means 2 and -2, deviations 1: from 2 - 4 to 2 - 3, and from -2 + 3 to -2 + 4."""
    own = tensor([[1.0, -1.0], [3.0, -3.0]])
    sent = TrimAttack(knows="own")(PoisonInputs(own.repeat(200, 1), None, 9), draw())
    assert bool((sent >= tensor([-2.0, 1.0])).all() & (sent <= tensor([-1.0, 2.0])).all())
    assert float(sent[:, 0].min()) == pytest.approx(-2, abs=0.02)


def test_attack_dpfl_has_the_length_of_a_noised_update() -> None:
    quiet = Dpfl()(inputs(clip=1.0), draw())
    assert torch.allclose(quiet, tensor([[0.6, -0.8], [0.0, 1.0]]))
    wide = torch.full((1, 10_000), 1.0)
    loud = Dpfl()(PoisonInputs(wide, clip=1.0, sigma=0.5), draw())
    assert float(loud.norm()) == pytest.approx(math.sqrt(1 + 0.25 * 10_000), rel=0.02)
    assert bool((loud == loud[0, 0]).all())
    assert Dpfl().change(TensorRecords(torch.zeros(1, 1), tensor([2])), 10, draw()).y.tolist() == [7]


def test_mimic_copies_the_one_that_stands_out() -> None:
    benign = tensor([[0.0, 0.0], [0.0, 0.1], [0.1, 0.0], [5.0, 5.0]])
    assert Mimic()(inputs(benign=benign), draw()).tolist() == [[5.0, 5.0]] * 2


def test_min_max_and_min_sum_by_hand() -> None:
    """Honest 1, 2, 3: mean 2, and 2 apart at most: 2 - t lies within 2 of 3 up to t = 1.

    Sums of squares: 2's is 2, the least; those of 2 - t are 2 + 3 t², so t = 0. Of 0, 0, 3: the least is 9; the mean 1
    has 6, so t = 1; the farthest is 3, and 1 - t lies within 3 of it up to t = 1.
    """
    first, second = (tensor([[float(v)] for v in values]) for values in ((1, 2, 3), (0, 0, 3)))
    assert MinMax()(inputs(own=first[:1], benign=first), draw()).tolist() == [[pytest.approx(1.0)]]
    assert MinSum()(inputs(own=first[:1], benign=first), draw()).tolist() == [[pytest.approx(2.0)]]
    assert MinMax()(inputs(own=first[:1], benign=second), draw()).tolist() == [[pytest.approx(0.0, abs=1e-6)]]
    assert MinSum()(inputs(own=first[:1], benign=second), draw()).tolist() == [[pytest.approx(0.0, abs=1e-6)]]
    assert MinMax(knows="own")(inputs(own=first, benign=None), draw()).tolist() == [[pytest.approx(1.0)]] * 3


@pytest.mark.parametrize("along", ["mean", "sign", "std"])
@pytest.mark.parametrize("part", [MinMax, MinSum])
def test_the_move_is_as_large_as_allowed(part: type[MinMax] | type[MinSum], along: str) -> None:
    benign = torch.randn(7, 12, generator=draw(1)).double()
    attack = part.parse({"use": part.use, "along": along})
    row = attack(PoisonInputs(benign[:1], benign, 8), draw())[0]

    def room(at: Tensor) -> float:
        squares = torch.cdist(benign, benign).square()
        away = (at - benign).square().sum(1)
        return float(squares.max() - away.max()) if part is MinMax else float(squares.sum(1).min() - away.sum())

    further = row + 1e-3 * (row - benign.mean(0))
    assert room(row) == pytest.approx(0, abs=1e-9)
    assert room(further) < 0


class Loud(LocalPrivacy, use="loud, for a test"):
    """Adds a thousand to everything."""

    def __call__(self, update: Update, coins: Coins) -> tuple[Update, ParticipationCost]:
        return Update(update.vector + 1000, update.layout, update.luggage, form=update.form), ParticipationCost("loud")

    def claims(self, participations: int = 1) -> str:
        return "none"


def made() -> Assembled:
    coins = Coins.from_seed(1)
    return assemble(
        Digits(), Iid(clients=5), Mlp(hidden=(16,)), Sgd(lr=0.3, epochs=2), coins, machine=Hardware(workers=1)
    )


def accuracy(attack: Poison | None, members: tuple[str, ...] = ("c3", "c4"), count: int = 3) -> float:
    task, pipeline, coins = made().task, plain("uniform"), Coins.from_seed(1)
    threat: Mapping[str, Any] = {}
    if attack is not None:
        task, found = with_malicious_clients(pipeline, task, members, attack, 10, coins.child("attack"))
        threat = {"threat": found}
    *_, last = rounds(pipeline, task, Federation(rounds=count), coins, Local(), **threat)
    return last.metrics["accuracy"]


def test_attacks_run_on_the_real_loop() -> None:
    honest = accuracy(None)
    assert honest > 0.85
    assert accuracy(SignFlip(factor=2)) < honest - 0.3
    assert accuracy(LabelFlip()) < honest - 0.05
    assert accuracy(SignFlip(), members=()) == honest


def test_malicious_clients_skip_the_noise_and_send_what_was_crafted() -> None:
    task, coins = made().task, Coins.from_seed(1)
    pipeline = Pipeline(privacy=Loud())
    poisoned, threat = with_malicious_clients(pipeline, task, ("c3", "c4"), TrimAttack(), 10, coins)
    (done,) = rounds(
        pipeline, poisoned, Federation(rounds=1), coins, Local(), threat=threat, keep={"server": "keep"}
    )  # fmt: skip
    assert {name: memory["spent"] for name, memory in done.state.memories.items() if name != "server"} == {
        "c0": "loud", "c1": "loud", "c2": "loud", "c3": "none", "c4": "none"
    }  # fmt: skip
    (plainly,) = rounds(Pipeline(), poisoned, Federation(rounds=1), coins, Local())
    assert float((done.state.model.vector - plainly.state.model.vector).mean()) == pytest.approx(600, rel=1e-3)


def test_a_stranger_cannot_be_malicious() -> None:
    with pytest.raises(SpecError, match="'nobody' cannot be malicious: it is not enrolled"):
        with_malicious_clients(plain(), made().task, ["nobody"], SignFlip(), 10, Coins.from_seed(1))


def test_a_trigger_has_a_corner_and_a_colour() -> None:
    red = Scaling(side=2, corner="upper-left", value=(1.0, 0.0, 0.5)).trigger(torch.full((1, 3, 4, 4), 0.25))
    assert red[0, :, 0, 0].tolist() == red[0, :, 1, 1].tolist() == [1.0, 0.0, 0.5]
    assert red[0, :, 2, 2].tolist() == red[0, :, 3, 3].tolist() == [0.25] * 3
    with pytest.raises(SpecError, match="one number"):
        Scaling(value=(1.0, 0.0, 0.0)).trigger(torch.zeros(1, 1, 4, 4))
