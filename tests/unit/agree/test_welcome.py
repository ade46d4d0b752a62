"""Newcomers to an epoch that goes on: they believe f + 1 of those who hold it, and nobody else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.boards import RUN, all_of, call, handing, once, saying, silent, table
from torch import Tensor

from croupier.agree.board import SERVER
from croupier.agree.commit_reveal import JOINT
from croupier.agree.welcome import invitation, welcome
from croupier.core.view import View
from croupier.errors import SpecError
from croupier_lab.bench.agreement.faults_and_cost import leaks
from croupier_lab.bench.agreement.table import Agreed, AgreementTable, settle

Body = Mapping[str, Tensor]


@pytest.fixture(scope="module")
def agreed() -> Agreed:
    return settle(JOINT, call(number=1, start=3), table())


def at(agreed: Agreed, **more: Any) -> AgreementTable:
    return table(seed=2, standings=agreed.standings, **more)


def test_a_newcomer_gets_the_secret_and_the_relay_does_not(agreed: Agreed) -> None:
    new = ("c4", "c5")
    tried = once(welcome(agreed.epoch, new), invitation(RUN, agreed.epoch, new), at(agreed))
    assert set(tried.held) == set(tried.call.roster)
    assert {standing.secret for standing in tried.held.values()} == set(agreed.secrets.values())
    assert leaks(set(agreed.secrets.values()), [tried.result.views[SERVER]]) == 0
    frames = {who: standing.rule(RUN, 7)[1] for who, standing in tried.held.items()}
    assert set(frames.values()) == {agreed.epoch.frame(7)}


def test_who_has_left_is_not_needed_and_no_fewer_must_tell_the_same(agreed: Agreed) -> None:
    """Two of four stay: both must tell it, as two of four would have had to."""
    new, stay = ("c4",), ("c1", "c2")
    form, told = welcome(agreed.epoch, new), invitation(RUN, agreed.epoch, new, stay)
    assert told.roster == ("c1", "c2", "c4")
    tried = once(form, told, at(agreed))
    assert set(tried.held) == set(told.roster)
    # The newcomer holds the epoch as everybody does, with all who agreed on it.
    assert tried.held["c4"].epoch == agreed.epoch
    tried = once(form, told, at(agreed, tamper=silent("c1", "give")))
    assert "2 holders of epoch 1 must tell one and the same secret; 1 do" in tried.aborts["c4"]


def _garbled(body: Body, view: View) -> Body:
    return {**body, "box": body["box"] ^ 1}


def test_too_few_holders_are_not_believed(agreed: Agreed) -> None:
    new = ("c4",)
    one = [silent("c0", "give"), silent("c1", "give"), saying("c2", "give", _garbled)]
    tried = once(welcome(agreed.epoch, new), invitation(RUN, agreed.epoch, new), at(agreed, tamper=all_of(*one[:2])))
    assert "c4" in tried.held
    tried = once(welcome(agreed.epoch, new), invitation(RUN, agreed.epoch, new), at(agreed, tamper=all_of(*one)))
    assert "2 holders of epoch 1 must tell one and the same secret; 1 do" in tried.aborts["c4"]


def test_only_holders_of_that_very_epoch_are_believed(agreed: Agreed) -> None:
    other = settle(JOINT, call(number=1, start=3), table(seed=9))
    mixed = {**agreed.standings, **{who: other.standings[who] for who in ("c0", "c1", "c2")}}
    new = ("c4",)
    told = once(welcome(agreed.epoch, new), invitation(RUN, agreed.epoch, new), table(seed=2, standings=mixed))
    assert "c0 does not hold epoch 1" in told.aborts["c0"]
    assert "1 do" in told.aborts["c4"]
    later = {who: standing.signs(2) for who, standing in agreed.standings.items()}
    told = once(welcome(agreed.epoch, new), invitation(RUN, agreed.epoch, new), table(seed=2, standings=later))
    assert "signed a later one" in told.aborts["c0"]
    assert "c4" in told.aborts


def test_a_relay_cannot_put_its_own_key_in_a_newcomers_place(agreed: Agreed) -> None:
    new = ("c4",)

    def own(bundle):  # type: ignore[no-untyped-def]
        rows = {who: {**row, "key": row["key"] ^ 1} for who, row in bundle.rows.items()}
        return replace(bundle, rows=rows)

    tried = once(welcome(agreed.epoch, new), invitation(RUN, agreed.epoch, new), at(agreed, tamper=handing("ask", own)))
    boxes = [m.body["box"] for inbox in tried.result.views[SERVER].inputs for m in inbox if m.kind == "give"]
    assert len(boxes) == 4
    assert not any(bool(box.any()) for box in boxes)
    assert "0 do" in tried.aborts["c4"]


def test_who_can_be_new(agreed: Agreed) -> None:
    for new in ((), ("c1",)):
        with pytest.raises(SpecError, match="name at least one, and nobody who agreed"):
            welcome(agreed.epoch, new)
    with pytest.raises(SpecError, match="faulty = 4: of 4 holders 0 to 3"):
        welcome(agreed.epoch, ("c4",), 4)
