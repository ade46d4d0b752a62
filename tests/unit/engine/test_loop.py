"""Rounds that too few clients come to."""

from __future__ import annotations

import pytest
import torch
from tests.laws.toy import CLIENTS, layout_for, task

from croupier.core.coins import Coins
from croupier.core.flow import Letter
from croupier.core.view import View
from croupier.encode.floats import Floats
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.state import Round, Threat
from croupier.errors import ProtocolError, SpecError
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.privacy.tiers import Tiers
from croupier.release.bucketed import Buckets

PIPELINE = Pipeline(
    privacy=Tiers(clip=1.0), encode=Floats(form="delta"), release=Buckets(smallest=3), place=Relay()
)  # fmt: skip
# In the second round only two come.
SHORT = Threat(absent=lambda number: frozenset(CLIENTS[2:]) if number == 1 else frozenset())


def played(carry: bool, threat: Threat = SHORT) -> list[Round]:
    plan = Federation(rounds=3, quorum=0.5, carry=carry)
    return list(rounds(PIPELINE, task(layout=layout_for(PIPELINE)), plan, Coins.from_seed(5), Local(), threat=threat))


def test_a_short_round_is_carried_over_and_what_was_sent_still_counts() -> None:
    first, second, third = played(carry=True)
    assert [len(done.present) for done in (first, second, third)] == [len(CLIENTS), 0, len(CLIENTS)]
    assert torch.equal(second.state.model.vector, first.state.model.vector)
    assert not torch.equal(third.state.model.vector, second.state.model.vector)
    # The two that came had sent their updates before anybody knew that too few would: seen is spent.
    counts = third.state.participations
    assert [counts[name] for name in CLIENTS] == [3, 3] + [2] * (len(CLIENTS) - 2)
    ledgers = [len(third.state.memories[name]["ledger"]) for name in CLIENTS]
    assert ledgers == [3, 3] + [2] * (len(CLIENTS) - 2)


def test_without_it_the_run_ends_with_the_reason() -> None:
    with pytest.raises(ProtocolError, match="round 2 cannot go on"):
        played(carry=False)


def test_what_is_wrong_otherwise_is_not_carried_over() -> None:
    def wrong(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        changed = []
        for one in letters:
            body = one.body
            if one.kind == "released" and not isinstance(body, bytes):
                body = {**body, "noise": body["noise"] * 2}
            changed.append(Letter(one.target, one.kind, body))
        return tuple(changed)

    with pytest.raises(ProtocolError, match="cannot go on"):
        played(carry=True, threat=Threat(corrupted={"relay": wrong}))


def test_a_client_that_is_not_enrolled_cannot_wish() -> None:
    pipeline = PIPELINE.model_copy(update={"privacy": Tiers(clip=1.0, wishes={"c01": 2.0})})
    with pytest.raises(
        SpecError, match=r"protocol\.privacy\.wishes\.c01: no client is called 'c01'; did you mean 'c1'"
    ):
        list(rounds(pipeline, task(layout=layout_for(pipeline)), Federation(), Coins.from_seed(1), Local()))
