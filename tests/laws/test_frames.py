"""Laws of training in hidden coordinates: replay, carry and fresh; and what is released is what was made, permuted."""

from __future__ import annotations

import pytest
import torch

from croupier.agree.coordinates import seed_of
from croupier.agree.standing import Standing
from croupier.core.coins import Coins
from croupier.core.epoch import Frame
from croupier.encode.hidden import HiddenUnits
from croupier.engine.state import run_id
from croupier.errors import ProtocolError
from tests.laws import test_carry, test_fresh, test_replay
from tests.laws.pipelines import HIDDEN
from tests.laws.toy import SEED, absent, layout_for, play, symmetry, task

# Three of the toy's four clients may not agree on a rule.
EVERY_ROUND = [name for name, pipeline in HIDDEN.items() if getattr(pipeline.encode, "agree", "") == "round"]


@pytest.mark.parametrize("name", EVERY_ROUND)
def test_too_few_may_not_agree(name: str) -> None:
    with pytest.raises(ProtocolError, match="3 clients can agree on the rule, and 4 are needed"):
        play(HIDDEN[name], threat=absent("c2"))


@pytest.mark.parametrize("name", HIDDEN)
def test_replay_carry_and_fresh(name: str) -> None:
    test_replay.check(HIDDEN[name])
    test_carry.check_bytes(HIDDEN[name])
    if name not in EVERY_ROUND:
        test_carry.check_bytes(HIDDEN[name], absent("c2"))
    test_fresh.check(HIDDEN[name])


@pytest.mark.parametrize("name", HIDDEN)
def test_what_leaves_is_what_was_made_under_the_rounds_rule(name: str) -> None:
    pipeline, coins = HIDDEN[name], Coins.from_seed(SEED)
    assert isinstance(pipeline.encode, HiddenUnits)
    shape = symmetry(layout_for(pipeline))
    for done in play(pipeline):
        standing = Standing.of(done.state.memories["c0"])
        seen = next(v for v in done.views["server"].inputs if v and getattr(v[0], "kind", "") == "up")
        for letter in seen:
            made = next(i for i in done.views[letter.source].inputs if getattr(i, "form", ""))
            start = (
                next(i for i in done.views[letter.source].inputs if isinstance(i, torch.Tensor))
                if (done.number or pipeline.encode.first == "clients")
                else task(layout=layout_for(pipeline)).first.vector
            )
            vector = made.vector - start if pipeline.encode.form == "delta" else made.vector
            frame = Frame.unpack(bytes(letter.body["frame"].tolist()))
            assert frame.round == (0 if pipeline.encode.kept else done.number)
            rule = shape.rule(seed_of(standing, run_id(coins), frame), frame.round)
            assert torch.equal(letter.body["vector"], shape.apply(vector, rule))
            assert not torch.equal(letter.body["vector"], vector)
