"""What is a client like, and is it the same as before? Controls both ways, who has nothing to go by, and the blind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch
from tests.scenes import Here, ask

from croupier.audit import question
from croupier.audit.attacks.traits.views import read_rounds
from croupier.audit.bench import Bench
from croupier.audit.blind import Blind
from croupier.audit.question import SERVER, Adversary, Arm, QuestionRun
from croupier.audit.questions import traits
from croupier.audit.questions.traits import Linkage, Traits
from croupier.audit.seen import Shows
from croupier.audit.setting import Setting
from croupier.audit.traits.auxiliary import MOST, auxiliary_clients
from croupier.audit.traits.findings import matched, tiered_case
from croupier.audit.traits.scores import TraitTruth, prior
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.encode.floats import Floats
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.errors import Unsuited
from croupier.learn.datasets import Digits, Households
from croupier.learn.fit import Sgd
from croupier.learn.models import Lstm, Mlp
from croupier.learn.split import Dirichlet, Natural
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.privacy.gaussian import Gaussian
from croupier.release.rows import Rows
from croupier.systems import intra, intra_sum, naive, plain, tazza, total

SETTING = Setting(
    Digits(), Dirichlet(clients=8, alpha=0.1, least=20), Mlp(hidden=(16,)), Sgd(lr=0.1, epochs=2, batch=16),
    Federation(rounds=2),
)  # fmt: skip
NONE = Arm("none", "none", plain("uniform"))
DROWNED = Arm(
    "drowned", "drowned",
    Pipeline(privacy=Gaussian(clip=1.0, sigma=50.0), encode=Floats(form="delta"), release=Rows(), place=Direct()),
)  # fmt: skip
ARMS = {
    "none": NONE, "drowned": DROWNED, "sum": Arm("sum", "sum", total(8)),
    **{grain: Arm(grain, grain, naive(grain)) for grain in ("model", "layer", "parameter")},
}  # fmt: skip
SEEDS = range(3)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in the fresh process: sums over several threads could differ in last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def bench(seed: int) -> Bench:
    return Bench(SETTING, seed, Here(), Local(), arms=(NONE,))


@cache
def trial(question: str, arm: str, seed: int) -> QuestionRun:
    asked = {"traits": Traits(), "linkage": Linkage()}[question]
    return asked.play(bench(seed), ARMS[arm], [SERVER])()["server"]


def gain(question: str, arm: str, attack: str) -> float:
    """What the view adds to the prior, on average over a few runs."""
    scores = [trial(question, arm, seed).scores[attack] for seed in SEEDS]
    return sum(one.value - one.prior for one in scores) / len(scores)


def test_undefended_updates_describe_their_clients_and_link_rounds() -> None:
    assert gain("traits", "none", "dominant") > 0.2
    assert gain("linkage", "none", "linked-centred") > 0.5
    score = trial("linkage", "none", 0).scores["name"]
    assert score.value == 1.0
    assert score.prior == pytest.approx(1 / 8)
    assert list(trial("linkage", "none", 0).scores)[-1] == "name"
    assert gain("linkage", "model", "linked-centred") > 0.5
    assert gain("linkage", "layer", "linked-centred") > 0.1
    assert "name" not in trial("linkage", "model", 0).scores


def test_updates_drowned_in_noise_tell_nothing() -> None:
    assert abs(gain("traits", "drowned", "dominant")) < 0.15
    assert abs(gain("linkage", "drowned", "linked-centred")) < 0.15


def test_a_shuffle_of_all_and_a_sum_tell_no_client_from_another() -> None:
    for arm in ("parameter", "sum"):
        assert abs(gain("traits", arm, "dominant")) < 0.25
    assert abs(gain("linkage", "parameter", "linked-centred")) < 0.3


def test_facts_are_tables_and_sentences() -> None:
    facts = trial("traits", "none", 0).facts
    (table,) = facts["tables"]
    assert table["heads"][0] == "measure"
    assert table["rows"][0][0] == "dominant: clients named right"
    assert all(len(row) == len(table["heads"]) for row in table["rows"])
    assert f"{MOST} auxiliary clients" in facts["sentences"][0]


@pytest.mark.parametrize("arm", ARMS)
def test_a_fresh_process_answers_the_same_and_is_not_told_the_truth(arm: str) -> None:
    """The fresh process is sent the same bytes and answers the same; what it is sent names no client's class."""
    panel = Here()
    asked = Bench(SETTING, 0, panel, Local(), arms=(NONE,))
    Traits().play(asked, ARMS[arm], [SERVER])
    ((topic, known, question, told),) = panel.asked
    with Blind() as process:
        assert canon.dump(ask(process, topic, known, question)) == canon.dump(told)
    truth = auxiliary_clients(asked.stage(NONE)).attributes["dominant"].of(asked.stage(NONE).task.enrolled)
    sent = canon.dump({"known": dict(known), "asked": dict(question)})
    assert bytes(canon.tensor_bytes(truth)) not in sent


def test_auxiliary_clients_are_made_of_records_that_nobody_trains_on() -> None:
    stage = bench(0).stage(NONE)
    found = auxiliary_clients(stage)
    assert len(found.names) == MOST
    assert not set(found.names) & set(stage.task.enrolled)
    labels = found.attributes["dominant"].of(found.names)
    assert len(set(labels.tolist())) > 5
    starts = {0: stage.task.first.vector}
    auxiliary = found.learn_from(starts, 0.1, Coins.from_seed(0))
    assert auxiliary.updates.shape == (1, MOST, stage.task.layout.size)
    assert float(auxiliary.updates.norm(dim=2).max()) < 0.1001
    assert torch.equal(auxiliary.updates, found.learn_from(starts, 0.1, Coins.from_seed(0)).updates)
    assert prior(TraitTruth((), {}), {}) == {}
    # From a model that noise has spoilt nobody trains: the question is not run, and the audit goes on.
    with pytest.raises(Unsuited, match=r"cannot train from the models of round 4: .*diverged"):
        found.learn_from({3: torch.full_like(stage.task.first.vector, 1e30)}, 0.1, Coins.from_seed(0))


def test_against_a_client_of_hidden_coordinates_auxiliary_clients_learn_in_the_order_that_it_trains_in() -> None:
    """Else their mean, which is taken off what it saw, would lie in an order of its own."""
    arm, client, panel = Arm("hidden", "hidden", tazza()), Adversary(("client",)), Here()
    Traits().play(Bench(SETTING, 0, panel, Local(), arms=(NONE,)), arm, [client])
    ((_, known, asked, _),) = panel.asked
    (view,) = read_rounds(asked)
    mean = known["auxiliary"]["updates"][0].mean(0)
    assert float(torch.cosine_similarity(view.rows[0], mean, dim=0)) > 0.5


def test_values_are_traced_to_their_senders_and_equal_ones_at_random() -> None:
    sent = torch.randn(6, 300, generator=torch.Generator().manual_seed(1))
    order = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(at)) for at in range(300)], 1)
    assert torch.equal(matched(sent.gather(0, order), sent, Coins.from_seed(0)), order)
    same = matched(torch.ones(6, 300), torch.ones(6, 300), Coins.from_seed(0))
    assert all(80 > int((row == 2).sum()) > 25 for row in same)


def test_who_has_nothing_to_go_by_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench(0)
    assert Linkage().unseen(one, ARMS["sum"], SERVER) == "a sum of everybody has no rows to link"
    assert Traits().unseen(one, ARMS["sum"], SERVER) == ""
    short = Bench(replace(SETTING, plan=Federation(rounds=1)), 0, Here(), Local(), arms=(NONE,))
    assert "set federation.rounds to 2" in Linkage().unfit(short, NONE)
    assert Linkage().unfit(one, NONE) == Traits().unfit(one, NONE) == ""
    for room in (question, traits):
        monkeypatch.setattr(room, "shows", lambda *_: Shows("noise", "shares are uniform"))
    assert Traits().unseen(one, NONE, Adversary(("sum1",))) == "shares are uniform"
    assert "nothing that updates decide" in Linkage().unseen(one, NONE, Adversary(("sum1",)))


def test_households_need_some_outside() -> None:
    every = replace(SETTING, data=Households(), split=Natural(), model=Lstm(hidden=4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bench, "stage", lambda self, _: type("S", (), {"setting": self.setting})())
        assert "4 or more stay outside" in Traits().unfit(Bench(every, 0, Here(), Local(), arms=(NONE,)), NONE)


def test_noise_by_tiers_is_asked_as_its_own_experiment() -> None:
    """One training of each noise serves every arm and both questions."""
    own = Arm("mine", "mine", intra(smallest=4), own=True)
    noise = Arm("noise", "noise", own.pipeline.model_copy(update={"release": Rows(), "place": Direct()}))
    setting = replace(SETTING, split=Dirichlet(clients=16, alpha=0.1, least=20))
    one = Bench(setting, 0, Here(), Local(), arms=(own, NONE, noise, ARMS["model"]))
    ways = {arm.key: tiered_case(one, arm, SERVER) for arm in one.arms}
    assert ways == {
        "mine": ("tiers", "parameter"), "none": ("no noise", "rows"), "noise": ("tiers", "rows"), "model": None,
    }  # fmt: skip
    assert tiered_case(one, own, Adversary(("client",))) is None
    for arm in (own, NONE, noise):
        described = Traits().play(one, arm, [SERVER])()["server"]
        linked = Linkage().play(one, arm, [SERVER])()["server"]
        assert "none of the 12 attacked" in described.facts["sentences"][0]
        assert ("the last one's row, bit for bit" in described.facts["sentences"][-1]) is (arm is own)
        assert set(described.scores) == {"dominant"}
        assert ("name" in linked.scores) is (arm is not own)
    assert len([asked for asked in one.panel.asked if asked[0] == "traits"]) == 2  # type: ignore[attr-defined]
    # With too few clients to set some apart, real views are read.
    few = Bench(SETTING, 0, Here(), Local(), arms=(own,))
    assert tiered_case(few, own, SERVER) is None
    assert set(Linkage().play(few, own, [SERVER])()["server"].scores) == {"linked", "linked-centred"}


def test_sums_of_buckets_link_buckets() -> None:
    own = Arm("mine", "mine", intra_sum(16, smallest=4), own=True)
    setting = replace(SETTING, split=Dirichlet(clients=16, alpha=0.1, least=20))
    one = Bench(setting, 0, Here(), Local(), arms=(own,))
    assert tiered_case(one, own, SERVER) == ("tiers", "sums")
    assert Linkage().unseen(one, own, SERVER) == ""
    assert list(Linkage().play(one, own, [SERVER])()["server"].scores) == ["bucket", "bucket-centred"]
