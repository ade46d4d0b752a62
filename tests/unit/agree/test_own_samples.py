"""Probes that are records of the clients' own, sent beside their uploads under the round's rule."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.agree.test_epochs import made, played

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.clusters import Clusters
from croupier.agree.coordinates import seed_of
from croupier.agree.standing import Standing
from croupier.core.coins import Coins
from croupier.core.epoch import Frame
from croupier.core.update import Gathered, Model
from croupier.engine.state import Round, run_id
from croupier.errors import ProtocolError, SpecError
from croupier.spec import load
from croupier.statement import explain

SAMPLES = ("protocol.aggregate.probes_from=samples", "protocol.encode.samples=true")
KEEP: Any = {"*": "keep"}


def uploads(done: Round) -> dict[str, Any]:
    """What each client sent the server."""
    inboxes = [inbox for inbox in done.views["server"].inputs if isinstance(inbox, tuple)]
    return {one.source: one.body for inbox in inboxes for one in inbox if getattr(one, "kind", "") == "up"}


def test_each_upload_takes_along_a_record_of_its_own_client_under_the_rule() -> None:
    done, task, _, coins = played(*SAMPLES, "federation.rounds=1", keep=KEEP)
    symmetry, fit = task.task.symmetry, task.task.fit
    assert symmetry is not None
    sent = uploads(done[0])
    assert set(sent) == set(done[0].cohort)
    for who, body in sent.items():
        frame = Frame.unpack(bytes(body["frame"].tolist()))
        seed = seed_of(Standing.of(done[0].state.memories[who]), run_id(coins), frame)
        under = symmetry().under(symmetry().rule(seed, frame.round))
        records = fit.shards[task.task.shards[who]]  # type: ignore[attr-defined]
        plain = under.restore(body["sample"].unsqueeze(0))[0]
        assert any(torch.equal(plain, record) for record in records.x)
        # In the order that it travels in it is none of them.
        assert not any(torch.equal(body["sample"], record) for record in records.x)
        assert sorted(plain.flatten().tolist()) == sorted(body["sample"].flatten().tolist())


def test_permuted_records_put_to_permuted_models_answer_as_plain_ones() -> None:
    done, task, spec, coins = played(*SAMPLES, "federation.rounds=1", keep=KEEP)
    symmetry, answers = task.task.symmetry, task.task.answers
    assert symmetry is not None
    assert answers is not None
    sent = uploads(done[0])
    frame = Frame.unpack(done[0].state.model.frame)
    seed = seed_of(Standing.of(done[0].state.memories[done[0].cohort[0]]), run_id(coins), frame)
    under = symmetry().under(symmetry().rule(seed, frame.round))
    rows = torch.stack([sent[who]["vector"] for who in done[0].cohort])
    samples = torch.stack([sent[who]["sample"] for who in done[0].cohort])
    hidden = [answers(row, samples) for row in rows]
    plain = [answers(under.invert(row), under.restore(samples)) for row in rows]
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(hidden, plain, strict=True))
    # The groups of the run are those that the samples give in plain coordinates.
    rule = spec.protocol.aggregate
    assert isinstance(rule, Clusters)
    desk = Desk((Model(task.task.first.vector),), task.task.layout, Coins.from_seed(0), answers=answers)
    bare = Gathered(
        done[0].cohort, torch.stack([under.invert(row) for row in rows]),
        ids=done[0].cohort, weights=torch.ones(len(rows)), samples=under.restore(samples),
    )  # fmt: skip
    _, memory = rule(bare, desk, {})
    assert memory["groups"] == done[0].state.memories["server"]["rule"]["groups"]


def test_another_record_every_round_and_the_same_run_again() -> None:
    done, *_ = played(*SAMPLES, "federation.rounds=2", "federation.cohort=20", keep=KEEP)
    first, second = (uploads(one) for one in done)
    assert sum(not torch.equal(first[w]["sample"].sort()[0], second[w]["sample"].sort()[0]) for w in first) > 10
    again, *_ = played(*SAMPLES, "federation.rounds=2", "federation.cohort=20")
    assert [one.metrics for one in again] == [one.metrics for one in done]


def test_noise_is_the_default_and_sends_no_record() -> None:
    done, *_ = played("federation.rounds=1", keep=KEEP)
    assert all(set(body) == {"vector", "frame"} for body in uploads(done[0]).values())


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        (SAMPLES[:1], "'hidden-units' sends none"),
        (SAMPLES[1:], "'clusters' does not look at"),
        ((SAMPLES[0], "protocol.encode=floats"), "'floats' sends none"),
        ((SAMPLES[1], "protocol.aggregate=mean"), "'mean' does not look at"),
        (
            (
                SAMPLES[1], "protocol.encode.kept=true", "protocol.encode.form=delta", "protocol.aggregate=mean",
                "protocol.privacy={use='gaussian',clip=1,sigma=1}",
            ),
            "no noise covers",
        ),
    ],
)  # fmt: skip
def test_records_are_neither_sent_for_nothing_nor_asked_for_in_vain(sets: tuple[str, ...], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        load("tazza", sets)


def test_without_records_there_is_nothing_to_ask_about() -> None:
    spec = load("tazza")
    task = made(spec, Coins.from_seed(0)).task
    got = Gathered(("a", "b"), torch.stack([task.first.vector] * 2), weights=torch.ones(2), ids=("a", "b"))
    desk = Desk((task.first,), task.layout, Coins.from_seed(1), answers=task.answers, inputs=task.inputs)
    with pytest.raises(ProtocolError, match="none did"):
        Clusters(probes_from="samples")(got, desk, {})


def test_the_statement_says_what_the_records_tell() -> None:
    said = explain(load("tazza", SAMPLES).protocol, noise="DP-SGD says something")
    assert "one record of each client every round" in said.learns["server"]
    assert any("one record of that client, every round" in line for line in said.encoding)
    assert said.differential_privacy.startswith("no differential privacy is claimed")
    assert "which it may choose" in said.robustness
    quiet = explain(load("tazza").protocol)
    assert "record of each client" not in str(quiet.plain())
