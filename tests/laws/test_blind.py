"""blind: attacks run in a fresh process that holds only bytes of views and declared knowledge.
prior: every success stands beside the best attack with the same knowledge and no view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from croupier.audit import blind as blind_law
from croupier.audit import membership
from croupier.audit.attacks import source
from croupier.audit.blind import Blind, Panel
from croupier.audit.context import AttackContext
from croupier.audit.knowledge import Knowledge
from croupier.audit.questions.source import ATTACKS, MEMBERSHIP
from croupier.audit.setting import Setting
from croupier.audit.stage import Stage, Truth
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.view import facts
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.errors import CroupierError, ProtocolError
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Dirichlet
from croupier.systems import naive, plain, rns, total
from croupier_lab.source_inference.experiment import Defence
from tests.scenes import ask, here

CLIENTS = 4
SETTING = Setting(
    Digits(), Dirichlet(clients=CLIENTS, alpha=0.3, least=20), Mlp(hidden=(16,)), Sgd(lr=0.1, epochs=1),
    Federation(rounds=1), records=10,
)  # fmt: skip
DEFENCES = (
    Defence("none", plain("uniform"), ATTACKS["named"], MEMBERSHIP["named"]),
    Defence("model shuffle", naive("model"), ATTACKS["model"], MEMBERSHIP["model"]),
    Defence("layer shuffle", naive("layer"), ATTACKS["layer"], MEMBERSHIP["layer"]),
    Defence("parameter shuffle", naive("parameter"), ATTACKS["parameter"], MEMBERSHIP["parameter"]),
    Defence("sum only", total(CLIENTS), ATTACKS["sum"], MEMBERSHIP["sum"]),
    Defence("residue counts", rns(CLIENTS, release="counts"), ATTACKS["counts"], MEMBERSHIP["counts"]),
)
QUIET = Coins.from_seed(6)
Asked = dict[str, Any]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in the fresh process: sums over several threads could differ in last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def stage() -> Stage:
    return Stage(SETTING, Coins.from_seed(1))


@cache
def view_of(number: int) -> tuple[Mapping[str, Any], Tensor, Knowledge, Truth]:
    """One round's view of a defence's server, the model handed out, the adversary's knowledge, and the truth."""
    pipeline, one = DEFENCES[number].pipeline, stage()
    (done,) = rounds(pipeline, one.task, SETTING.plan, one.coins, Local(), keep={"server": "keep"})
    return facts(done.views["server"]), one.task.first.vector, *one.about(done.present, SETTING.noise)


def known(knowledge: Knowledge) -> dict[str, Any]:
    """What the process is told before any question."""
    return {"knowledge": knowledge.plain(), "quiet": QUIET.export()}


def question(number: int, **changes: Any) -> Asked:
    """All that is asked about a defence's view."""
    (view, start, *_), defence = view_of(number), DEFENCES[number]
    return {
        "views": {"server": (view,)}, "start": start, "protocol": defence.pipeline.plain(), "source": defence.attacks,
        "membership": defence.membership, "coins": Coins.from_seed(8).export(), **changes,
    }  # fmt: skip


def nothing_seen() -> Asked:
    """What the prior is asked."""
    return {
        "views": {}, "start": None, "protocol": {}, "source": ("prior",), "membership": ("prior",),
        "coins": Coins.from_seed(9).export(),
    }  # fmt: skip


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """To the last bit."""
    return canon.dump(dict(one)) == canon.dump(dict(other))


def check(process: Blind, knowledge: Knowledge, asked: Asked) -> dict[str, Any]:
    """The same answer here and in the fresh process."""
    try:
        there = ask(process, "source", known(knowledge), asked)
    except CroupierError as error:
        raise AssertionError(f"the fresh process could not: {error}") from None
    assert same(here("source", known(knowledge), asked), there), "the fresh process answered otherwise"
    return there


@pytest.fixture(scope="module")
def process() -> Iterator[Blind]:
    """One fresh process for all cases."""
    with Blind() as started:
        yield started


@pytest.mark.parametrize("number", range(len(DEFENCES)), ids=[defence.name for defence in DEFENCES])
def test_blind(process: Blind, number: int) -> None:
    knowledge = view_of(number)[2]
    got = check(process, knowledge, question(number))
    assert set(got["guesses"]) == set(DEFENCES[number].attacks)
    assert set(got["scores"]) == set(DEFENCES[number].membership)
    assert all(len(guesses) == len(knowledge.records[1]) for guesses in got["guesses"].values())
    assert all(set(guesses.tolist()) <= set(range(CLIENTS)) for guesses in got["guesses"].values())
    assert all(len(scores) == len(knowledge.suspects[1]) for scores in got["scores"].values())


def test_the_prior_is_blind_too(process: Blind) -> None:
    check(process, view_of(0)[2], nothing_seen())


def test_every_attack_is_among_them() -> None:
    tried = {name for defence in DEFENCES for name in defence.attacks} | {"prior"}
    assert tried == set(source.ATTACKS) == set(source.TITLES)
    looked = {name for defence in DEFENCES for name in defence.membership} | {"prior"}
    assert looked == set(membership.ATTACKS) == set(membership.TITLES)


def test_a_planted_peek_at_owners_is_caught(process: Blind, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, knowledge, truth = view_of(0)

    def peek(scene: AttackContext, coins: Coins) -> Tensor:
        return torch.nn.functional.one_hot(truth.owners, CLIENTS).T.double()

    monkeypatch.setitem(source.ATTACKS, "named", peek)
    with pytest.raises(AssertionError, match="answered otherwise"):
        check(process, knowledge, question(0, source=("named",), membership=()))


def test_a_planted_peek_at_members_is_caught(process: Blind, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, knowledge, truth = view_of(0)
    monkeypatch.setitem(membership.ATTACKS, "loss", lambda scene, coins: truth.members.double())
    with pytest.raises(AssertionError, match="answered otherwise"):
        check(process, knowledge, question(0, source=(), membership=("loss",)))


def test_an_attack_that_the_process_does_not_know_is_an_error(process: Blind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(source.ATTACKS, "mine", source.prior)
    with pytest.raises(AssertionError, match="no attack is called 'mine'"):
        check(process, view_of(0)[2], question(0, source=("mine",)))
    check(process, view_of(0)[2], question(0, source=("named",), membership=()))


def leaves(value: Any) -> Iterator[Tensor]:
    """Every tensor in plain values."""
    if isinstance(value, Tensor):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ():
        yield from leaves(inner)


def holds(tensor: Tensor, truth: Tensor) -> bool:
    """Whether it tells the truth by itself, as it is or turned round."""
    if tensor.dim() != 1 or len(tensor) != len(truth):
        return False
    return torch.equal(tensor.double(), truth.double()) or torch.equal(tensor.double(), 1 - truth.double())


@pytest.mark.parametrize("number", range(len(DEFENCES)), ids=[defence.name for defence in DEFENCES])
def test_what_the_process_is_sent_holds_no_truth(number: int) -> None:
    _, _, knowledge, truth = view_of(number)
    sent: dict[str, Any] = {"known": known(knowledge), "asked": question(number)}
    every = list(leaves(canon.load(canon.dump(sent))))
    assert len(every) > 10
    for told in (truth.owners, truth.members):
        assert not any(holds(tensor, told) for tensor in every)
        for tensor in (told.to(dtype) for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool)):
            assert bytes(canon.tensor_bytes(tensor)) not in canon.dump(sent)
    # The search would have found it.
    planted = {**sent, "hint": truth.owners}
    assert any(holds(tensor, truth.owners) for tensor in leaves(planted))
    assert bytes(canon.tensor_bytes(truth.owners)) in canon.dump(planted)


def test_the_order_of_records_and_suspects_tells_nothing() -> None:
    truth = view_of(0)[3]
    # Sorted by owner there would be 3 changes from one record to the next; shuffled, about 3 in 4.
    assert int((truth.owners.diff() != 0).sum()) > len(truth.owners) // 2
    assert int((truth.members.int().diff() != 0).sum()) > len(truth.members) // 3
    assert torch.equal(torch.bincount(truth.owners), torch.full((CLIENTS,), 10))
    assert int(truth.members.sum()) * 2 == len(truth.members)


def test_shadow_sets_fresh_records_and_training_records_are_disjoint() -> None:
    held = stage().held
    every = [
        index for parts in (held.shadows, held.unused, held.training) for who in sorted(parts) for index in [parts[who]]
    ]
    assert len(every) == 3 * CLIENTS
    together = torch.cat(every)
    assert len(set(together.tolist())) == len(together)
    assert len(together) == len(stage().made.dataset.train)


def test_what_is_asked_about_and_what_is_known_are_what_they_should_be() -> None:
    """By the records themselves: asked are training records of their owner, shadows are nobody's training records."""
    _, _, knowledge, truth = view_of(0)
    held, train = stage().held, stage().made.dataset.train

    def these(index: Tensor) -> set[bytes]:
        return {row.numpy().tobytes() for row in train.batch(index)[0]}

    own = {who: these(held.training[who]) for who in knowledge.clients}
    for owner, row in zip(truth.owners.tolist(), knowledge.records[0], strict=True):
        assert row.numpy().tobytes() in own[knowledge.clients[owner]]
    trained, unused = set().union(*own.values()), these(torch.cat(list(held.unused.values())))
    for member, row in zip(truth.members.tolist(), knowledge.suspects[0], strict=True):
        assert row.numpy().tobytes() in (trained if member else unused)
    for who, (inputs, labels) in zip(knowledge.clients, knowledge.shadows, strict=True):
        assert torch.equal(inputs, train.batch(held.shadows[who])[0])
        assert torch.equal(labels, train.batch(held.shadows[who])[1])


def test_training_sees_only_training_records() -> None:
    """The task's shards, by their digests, are the training records and nothing else."""
    one = stage()
    for who, digest in one.task.shards.items():
        assert digest == f"{who}:{one.made.dataset.train.take(one.held.training[who]).digest()}"


def test_which_process_answers_and_in_which_order_changes_nothing(process: Blind) -> None:
    """One process asked in order, and two asked at once in the opposite order."""
    knowledge = view_of(0)[2]
    every = [question(0), nothing_seen(), *(question(number) for number in range(1, len(DEFENCES)))]
    one = [ask(process, "source", known(knowledge), asked) for asked in every]
    with Panel(2) as panel:
        waiting = [panel.ask("source", known(knowledge), asked) for asked in every[::-1]]
        two = [future.result() for future in waiting][::-1]
    assert all(same(*pair) for pair in zip(one, two, strict=True))


def test_a_process_forgets_what_it_knew(process: Blind) -> None:
    """Other knowledge in between leaves no trace, and is not mixed up."""
    knowledge = view_of(0)[2]
    other = replace(knowledge, shadows=knowledge.shadows[::-1])
    first = ask(process, "source", known(knowledge), nothing_seen())
    between = ask(process, "source", known(other), nothing_seen())
    assert same(ask(process, "source", known(knowledge), nothing_seen()), first)
    assert not same(between, first)


def test_an_attack_that_does_not_fit_a_view_is_refused_not_fooled(process: Blind) -> None:
    """A shuffled view has no names, and a sum no rows."""
    knowledge = view_of(1)[2]
    with pytest.raises(CroupierError, match="senders' names"):
        ask(process, "source", known(knowledge), question(1, source=("named",)))
    with pytest.raises(CroupierError, match="a sum leaves none"):
        ask(process, "source", known(knowledge), question(len(DEFENCES) - 1, source=("algorithm5",)))


def test_a_failed_answer_does_not_shift_the_next(process: Blind) -> None:
    """Knowledge that cannot be studied is one error to one question, and leaves nothing behind."""
    knowledge = view_of(0)[2]
    first = ask(process, "source", known(knowledge), nothing_seen())
    with pytest.raises(CroupierError, match="no model has that name"):
        ask(process, "source", known(replace(knowledge, model={"use": "nothing"})), nothing_seen())
    assert same(ask(process, "source", known(knowledge), nothing_seen()), first)


def test_a_process_that_dies_is_an_error_and_stays_one(capfd: pytest.CaptureFixture[str]) -> None:
    """Suspects that no network can take crash the attack: it is said at once, again, and is not hidden at the end."""
    broken = replace(view_of(0)[2], suspects=(torch.zeros(3, 99), torch.zeros(3, dtype=torch.int64)))

    def asked() -> None:
        with Panel(1) as panel:
            waiting = [panel.ask("source", known(broken), nothing_seen()) for _ in range(3)]
            assert all(isinstance(future.exception(), CroupierError) for future in waiting)
            waiting[2].result()

    with pytest.raises(CroupierError, match="its process ended"):
        asked()
    assert "Traceback" in capfd.readouterr().err


def test_no_suspect_is_known_to_be_trained_on() -> None:
    """The adversary knows that the records asked about are members; a suspect among them would be no question."""
    _, _, knowledge, truth = view_of(0)
    known = {row.numpy().tobytes() for row in knowledge.records[0]}
    suspects = [row.numpy().tobytes() for row in knowledge.suspects[0]]
    # Digits has a few pictures twice.
    assert sum(row in known for row in suspects) <= 2
    assert int(truth.members.sum()) * 2 == len(truth.members) > 0


def test_processes_end_when_the_experiment_does(capfd: pytest.CaptureFixture[str]) -> None:
    """Interrupted in the middle of an attack: no process is left, and none of them has anything to say."""
    _, _, knowledge, _ = view_of(3)
    with pytest.raises(KeyboardInterrupt), Panel(2) as panel:  # noqa: PT012
        panel.ask("source", known(knowledge), question(3))
        raise KeyboardInterrupt
    assert all(blind._process.poll() is not None for blind in [seat.blind for seat in panel._seats])
    assert capfd.readouterr().err == ""


def test_a_topic_is_studied_once_whatever_is_asked_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another topic's question does not make a process forget; other knowledge of the same topic does."""
    _, _, knowledge, _ = view_of(3)
    told: list[str] = []
    put = blind_law._put

    def heard(pipe: Any, body: bytes) -> None:
        told.append(canon.load(body).get("topic", "a question"))
        put(pipe, body)

    monkeypatch.setattr(blind_law, "_put", heard)
    with Blind() as started:
        first = ask(started, "source", known(knowledge), nothing_seen())
        with pytest.raises(ProtocolError, match="guess"):
            ask(started, "separation", {"layout": ()}, {"rounds": (), "protocol": {}, "attacks": ("guess",)})
        assert same(ask(started, "source", known(knowledge), nothing_seen()), first)
        assert told == ["source", "a question", "separation", "a question", "a question"]
        ask(started, "source", known(replace(knowledge, models=2)), nothing_seen())
        assert told[5:] == ["source", "a question"]


def test_a_question_that_is_cut_off_ends_the_process_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    with Blind() as blind:
        assert blind._process.stdin is not None
        blind._process.stdin.write((1000).to_bytes(8, "little") + b"only this much")
    assert blind._process.returncode == 0
    assert capfd.readouterr().err == ""


def test_the_names_of_defences_are_these() -> None:
    names = ["none", "model shuffle", "layer shuffle", "parameter shuffle", "sum only", "residue counts"]
    assert [defence.name for defence in DEFENCES] == names
    assert all(isinstance(defence, Defence) and defence.attacks[-1].endswith("+prior") for defence in DEFENCES)
