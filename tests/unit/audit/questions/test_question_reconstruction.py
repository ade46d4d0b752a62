"""What a record looked like: exact where single updates are seen, and nothing but a guess where noise drowns them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from tests.scenes import answer, ask
from torch import Tensor

from croupier.audit.attacks.reconstruction import PublicKnowledge
from croupier.audit.bench import Bench
from croupier.audit.blind import Blind, Panel
from croupier.audit.question import SERVER, Adversary, Arm, QuestionRun
from croupier.audit.questions.reconstruction import Reconstruction, Scene, unreadable
from croupier.audit.setting import FAST, Setting
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.intervals import Rate
from croupier.core.update import Layout
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.learn.datasets import Digits
from croupier.learn.dp_fit import DpSgd
from croupier.learn.fit import Fit, Sgd
from croupier.learn.models import Mlp
from croupier.learn.private import clip_and_noise
from croupier.learn.single import RATE, SingleSteps, single_steps
from croupier.learn.split import Dirichlet
from croupier.pipeline import Pipeline
from croupier.privacy.gaussian import Gaussian
from croupier.systems import naive, plain, tazza, total

CLIENTS = 10
SETTING = Setting(
    Digits(), Dirichlet(clients=CLIENTS, alpha=0.3, least=20), Mlp(hidden=(64,)), Sgd(lr=0.1), Federation(rounds=1),
    depth=FAST,
)  # fmt: skip
OPEN = plain("uniform")
NOISY = {"privacy": Gaussian(clip=1.0, sigma=10.0), "encode": OPEN.encode.model_copy(update={"form": "delta"})}
ARMS = {
    "none": OPEN, "model": naive("model"), "layer": naive("layer"), "parameter": naive("parameter"),
    "sum": total(CLIENTS), "drowned": OPEN.model_copy(update=NOISY), "tazza": tazza(),
}  # fmt: skip


class Heard(Panel):
    """Answers at once, in this process, from the very bytes that a fresh one would be sent, and remembers these."""

    def __init__(self) -> None:
        super().__init__(0)
        self.sent: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def ask(self, topic: str, known: Mapping[str, Any], asked: Mapping[str, Any]) -> Any:
        told: Any = canon.load(canon.dump({"known": dict(known), "asked": dict(asked)}))
        self.sent.append((topic, told["known"], told["asked"]))
        return Said(answer(*self.sent[-1]))


class Said:
    """An answer that is there."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    def result(self) -> dict[str, Any]:
        """It."""
        return self.found


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in the fresh process: sums over several threads could differ in last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def bench() -> Bench:
    arms = tuple(Arm(name, name, Pipeline.parse(one.plain())) for name, one in ARMS.items())
    return Bench(SETTING, 1, Heard(), Local(), arms=arms)


@cache
def tried(key: str) -> QuestionRun:
    arm = next(one for one in bench().arms if one.key == key)
    return Reconstruction().play(bench(), arm, [SERVER])()["server"]


def sent_about(key: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """All that the attacks on an arm were sent."""
    tried(key)
    panel, protocol = bench().panel, canon.dump(Pipeline.parse(ARMS[key].plain()).plain())
    assert isinstance(panel, Heard)
    return next(one for one in panel.sent if canon.dump(one[2]["protocol"]) == protocol)


def gain(key: str, attack: str) -> float:
    score = tried(key).scores[attack]
    return score.value - score.prior


@pytest.mark.parametrize("key", ["none", "model", "layer"])
@pytest.mark.parametrize("attack", ["read", "read+prior"])
def test_rows_of_single_clients_are_read_exactly(key: str, attack: str) -> None:
    assert tried(key).scores[attack].value > 90
    assert tried(key).scores[attack].prior < 16
    assert list(tried(key).scores)[-1] == "read+prior"


def test_what_a_sum_is_attacked_by_works_on_one_client_alone() -> None:
    assert tried("none").controls["peel"].value > 90
    assert not tried("sum").controls


def test_a_sum_of_ten_single_steps_is_taken_apart() -> None:
    """As floats exactly; on the public grid of four digits nearly."""
    assert tried("parameter").scores["peel"].value > 90
    assert gain("sum", "peel") > 10
    assert tried("sum").scores["peel"].value < 60


def test_updates_that_are_drowned_in_noise_show_no_record() -> None:
    assert gain("drowned", "read") < 0
    assert gain("drowned", "read+prior") == pytest.approx(0, abs=0.5)


def test_hidden_units_are_read_as_they_lie() -> None:
    assert gain("tazza", "read+prior") < 0


def test_without_names_the_prior_is_flattered_by_the_same_matching() -> None:
    assert tried("model").scores["read"].prior > tried("none").scores["read"].prior


def test_pictures_and_a_table_are_shown() -> None:
    facts = tried("none").facts
    assert len(facts["pictures"]) == 5
    for one in facts["pictures"]:
        assert [each["says"] for each in one["pictures"]] == ["the record", "reconstructed", "the public average"]
        assert base64.b64decode(one["pictures"][0]["png"]).startswith(b"\x89PNG")
        assert len({each["png"] for each in one["pictures"]} - {one["pictures"][2]["png"]}) > 0
    (table,) = facts["tables"]
    assert table["heads"] == ["attack", "PSNR (dB)", "SSIM"]
    assert all(len(row) == 3 for row in table["rows"])
    canon.dump(canon.load(canon.dump(dict(tried("none").facts))))


def test_a_client_that_comes_once_is_handed_nothing() -> None:
    """Two of twenty clients take part in a round: what came of it neither of them is handed, if others come next."""
    alone = replace(SETTING, split=Dirichlet(clients=20, alpha=1.0, least=20), plan=Federation(rounds=2, cohort=2))
    client = Adversary(("client",))
    arm = Arm("none", "none", plain("uniform"))
    for seed in range(4):
        one = Bench(alone, seed, Heard(), Local(), arms=(arm,))
        first, second = one.play(arm, one.stage(arm).task.fit, 2).rounds
        if not set(first.present) & set(second.present):
            break
    else:
        pytest.fail("in every run a client came twice running")
    found = Reconstruction().play(one, arm, [client])()
    assert found["client"].not_run == {"peel": "it sees nothing of a round before the next one"}


def test_a_gain_is_said_on_one_scale() -> None:
    words = Reconstruction().words
    assert words(Rate(88.0, 87.0, 89.0)) == "records come out exactly: 88 dB nearer to the truth than a public average"
    assert "recognisably: 12 dB" in words(Rate(12.3, 11.0, 14.0))
    assert "blurred: 4.2 dB" in words(Rate(4.2, 3.0, 5.0))
    assert "as a hint at most: 0.5 dB" in words(Rate(0.5, 0.1, 0.9))
    assert words(Rate(-5.7, -6.4, -5.0)) == "no leak found: looking did not help"
    assert words(Rate(-0.2, -0.9, 0.5)) == "no leak found; if there is one, it is at most 0.5 dB (95 %)"


def leaves(value: Any) -> Iterator[Tensor]:
    """Every tensor in plain values."""
    if isinstance(value, Tensor):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ():
        yield from leaves(inner)


@pytest.fixture(scope="module")
def process() -> Iterator[Blind]:
    """One fresh process for all cases."""
    with Blind() as started:
        yield started


@pytest.mark.parametrize("key", ARMS)
def test_the_fresh_process_answers_the_same_from_the_same_bytes(process: Blind, key: str) -> None:
    topic, known, asked = sent_about(key)
    assert canon.dump(ask(process, topic, known, asked)) == canon.dump(answer(topic, known, asked))


@pytest.mark.parametrize("key", ARMS)
def test_what_the_process_is_sent_holds_no_record_of_a_client(key: str) -> None:
    one, (_, known, asked) = bench(), sent_about(key)
    sent = canon.dump({"known": known, "asked": asked})
    made = one.stage(one.arms[0]).made
    # The very records that were stepped on, drawn again.
    steps = single_steps(made, one.coins.child("single steps"))
    one.play(one.arms[0], steps, 1)
    assert len(steps.drawn) == CLIENTS
    for record in steps.drawn.values():
        assert bytes(canon.tensor_bytes(record)) not in sent
        shown = [tensor for tensor in leaves(asked) if tensor.numel() == record.numel()]
        assert not any(torch.allclose(tensor.flatten().float(), record.flatten(), atol=1e-3) for tensor in shown)
    # The search would have found it.
    assert bytes(canon.tensor_bytes(record)) in canon.dump({"known": known, "asked": asked, "hint": record})


def test_single_steps_are_plain_sgd_on_the_first_record_drawn() -> None:
    made = bench().stage(bench().arms[0]).made
    steps = single_steps(made, Coins.from_seed(3))
    shard, start = next(iter(made.task.shards.values())), made.task.first.vector
    (first,) = steps([(start, shard, Coins.from_seed(4))])
    kept = steps.drawn[shard]
    steps([(start, shard, Coins.from_seed(5))])
    assert steps.drawn[shard] is kept
    assert 0 < float((first.vector - start).norm()) < 10 * RATE
    assert not unreadable(made)


def test_a_private_step_is_clipped_and_noised() -> None:
    made = bench().stage(bench().arms[0]).made
    shard, start = next(iter(made.task.shards.values())), made.task.first.vector
    kept = single_steps(made, Coins.from_seed(3))

    def step(fit: Fit) -> Tensor:
        private = clip_and_noise(fit)
        steps = SingleSteps(made.module, made.task.layout, kept.shards, Coins.from_seed(3), private=private)
        return steps([(start, shard, Coins.from_seed(4))])[0].vector - start

    whole, clipped = step(Sgd()), step(DpSgd(clip=0.01, noise=0.0))
    assert float(clipped.norm()) == pytest.approx(RATE * 0.01, rel=1e-2)
    assert float(torch.cosine_similarity(whole, clipped, 0)) > 0.999
    assert float(step(DpSgd(clip=0.01, noise=1.0)).std()) == pytest.approx(RATE * 0.01, rel=0.1)


def test_layers_are_read_one_by_one_only_where_biases_travel_with_weights() -> None:
    scene = Scene(bench().stage(bench().arms[0]))
    assert scene.entrance == "whole"
    assert all(scene.single(kind) for kind in ("named", "noise", "model", "layer"))
    assert not any(scene.single(kind) for kind in ("parameter", "sum", "counts"))


def test_records_beyond_the_public_kinds_are_guessed_as_the_mean() -> None:
    """More clients than kinds of public records: as many guesses as were asked for, and none is invented."""
    mean, kinds = torch.full((3,), 0.5), torch.rand(2, 3, generator=Coins.from_seed(1).fast())
    edges = torch.zeros(3), torch.ones(3)
    told = PublicKnowledge(torch.nn.Linear(3, 2), Layout(()), 2, 2, 0.1, 1, False, mean, mean, *edges, kinds)
    found = told.whole(torch.zeros(0, 3), 5)
    assert found.shape == (5, 3)
    assert torch.equal(found[:2], kinds)
    assert torch.equal(found[2:], mean.expand(3, 3))
