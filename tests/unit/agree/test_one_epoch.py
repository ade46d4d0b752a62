"""What a conductor of epochs calls for, from standings alone, where clients have left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

import pytest
import torch
from tests.boards import RUN

from croupier.agree.before_round import AgreementRules, UpcomingRound
from croupier.agree.called import WELCOME, Called
from croupier.agree.conduct import PublicFacts
from croupier.agree.one_epoch import agree_for_epoch
from croupier.agree.seats import form_of
from croupier.agree.standing import PublicStanding
from croupier.core.epoch import Epoch
from croupier.core.update import Model
from croupier.errors import ProtocolError

Newcomers = Literal["epoch", "welcome"]
FOUR = ("c0", "c1", "c2", "c3")
FIRST = Epoch(0, 0, FOUR, b"0" * 32)
HIDDEN = Model(torch.zeros(2), FIRST.frame(2).pack())


def called_next(
    newcomers: Newcomers, standings: Mapping[str, PublicStanding], model: Model = HIDDEN, before: int = 3
) -> Called | None:
    """The first thing that is called for; None where all is well."""
    enrolled = tuple(sorted(standings))
    rules = AgreementRules("epoch", "joint", "cohort", newcomers, kept=False)
    meeting = UpcomingRound(before, enrolled, enrolled, frozenset(), 2, 3)
    facts = PublicFacts(rules, RUN, {}, meeting, standings.__getitem__, lambda: (model,))
    return next(agree_for_epoch(facts), None)


def holding(epoch: Epoch, who: tuple[str, ...]) -> dict[str, PublicStanding]:
    return dict.fromkeys(who, PublicStanding(epoch.number, epoch))


def test_a_welcome_calls_those_who_are_still_there() -> None:
    """c0 has left the federation: a notice that named it would be refused by everybody."""
    called = called_next("welcome", {**holding(FIRST, FOUR[1:]), "c4": PublicStanding()})
    assert called is not None
    assert (called.what, called.roster) == (WELCOME, ("c1", "c2", "c3", "c4"))
    # The epoch stays as it was agreed on: from it follows how many must tell the same.
    assert called.terms["epoch"]["roster"] == FOUR
    assert form_of(called, RUN)[1].roster == called.roster
    with pytest.raises(ProtocolError, match="are not those who hold the epoch and those who ask"):
        form_of(replace(called, roster=("c1", "c4", "c5")), RUN)


def test_too_few_who_stay_are_said() -> None:
    with pytest.raises(ProtocolError, match=r"c4 cannot be welcomed: 1 of the 4 clients .* and 2 must tell"):
        called_next("welcome", {**holding(FIRST, FOUR[3:]), "c4": PublicStanding()})


def test_where_everybody_holds_the_epoch_nothing_is_called() -> None:
    for newcomers in get_args(Newcomers):
        assert called_next(newcomers, holding(FIRST, FOUR)) is None


def test_who_agreed_and_lost_the_secret_is_nobody_to_be_welcomed() -> None:
    """A model lies in the epoch's coordinates and is moved nowhere: the others go on."""
    lost = {**holding(FIRST, FOUR[:3]), "c3": PublicStanding()}
    assert called_next("welcome", lost) is None
    called = called_next("welcome", {**lost, "c4": PublicStanding()})
    assert called is not None
    assert called.terms["new"] == ("c4",)
