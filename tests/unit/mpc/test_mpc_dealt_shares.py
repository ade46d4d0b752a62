"""A dealer as a party: hands travel by letter, are used in the attempt they came in, and a view with them replays."""

from __future__ import annotations

import numpy as np

from croupier.core import canon
from croupier.core.attempt import Attempt, AttemptId
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Flow, Given, Letter, Memory, Party, Wait
from croupier.core.update import Layout, Slice
from croupier.core.view import replay
from croupier.engine.local import Local
from croupier.mpc import dealt_shares, trust
from croupier.mpc.dealt_shares import Dealer, DealtShare
from croupier.mpc.ring import Z32
from croupier_lab.bench.speed.two_server_gates import plain_rule

NAMES = ("server0", "server1")
RULE = trust.SecretRule(4, 12)
ROOT = Coins.from_seed(4)
VOTES = ROOT.child("votes").secure().below(2, 48).reshape(4, 12)
REFERENCE = ROOT.child("reference").secure().below(2, 12)


def dealer(given: Given, memory: Memory, coins: Coins) -> Flow:
    """Deals once, keeps nothing."""
    dealt = trust.deal(RULE, coins.child("rule"))
    yield Exchange(tuple(Letter(NAMES[side], f"hand{side}", material.body()) for side, material in enumerate(dealt)))
    return memory


def server(given: Given, memory: Memory, coins: Coins) -> Flow:
    """Waits for its hand, and computes with its shares."""
    me = NAMES.index(given.me)
    (letter,) = yield Exchange(wait=Wait(f"hand{me}", ("dealer",)))
    shares = RULE.ring.split(VOTES, ROOT.child("split"))[me]
    material = DealtShare.received(me, letter.body)
    found = yield from trust.secret_rule(me, NAMES[1 - me], "rule", shares, material, RULE, REFERENCE)
    return {"signs": tuple(found.tolist())}


def test_a_dealer_deals_by_letter_and_a_view_replays() -> None:
    parties: dict[str, Party] = {"dealer": dealer, **dict.fromkeys(NAMES, server)}
    schemas = {f"hand{side}": dealt_shares.schema(side, trust.fitted(RULE)) for side in (0, 1)}
    givens = {name: Given(name, bytes(16), 0, 0, (), 0, Layout((Slice("w", (12,)),))) for name in parties}
    result = Local(ROOT.child("links"))(
        Attempt(
            attempt_id=AttemptId(bytes(32), bytes(16), 0, 0), parties=parties, givens=givens, memories={},
            coins={name: ROOT.child("party", name) for name in parties},
            schemas=schemas | trust.schemas("rule", RULE), bench={}, keep=dict.fromkeys(parties, "keep"),
        )
    )  # fmt: skip
    assert not result.refusals
    expected = tuple(plain_rule(VOTES, REFERENCE, RULE).tolist())
    for name in NAMES:
        assert result.outcomes[name].memory == {"signs": expected}
        (one, memory), (two, _) = replay(server, result.views[name]), replay(server, result.views[name])
        assert memory == {"signs": expected}
        assert len(one) == len(trust.schemas("rule", RULE))
        assert [canon.digest(letter.body) for letter in one] == [canon.digest(letter.body) for letter in two]
    # What the dealer hands out depends on nobody's votes, and it hears from nobody.
    assert result.views["dealer"].inputs == [()]


def test_each_hand_alone_is_uniform_and_both_fit() -> None:
    """The halves of a fitted secret differ from it and from each other; together they are the secret."""
    deal = Dealer(ROOT.child("one"))
    free = deal.residues(Z32, (1 << 14,))
    secret = np.full(1 << 14, 5, np.uint32)
    deal.fit_residues(Z32, secret)
    one, two = (material.open(side, secret.nbytes) for side, material in enumerate(deal.halves()))
    frees, halves = ([draw(Z32, (1 << 14,)) for draw in draws] for draws in (
        (one.residues, two.residues), (one.fitted_residues, two.fitted_residues),
    ))  # fmt: skip
    assert np.array_equal(frees[0] + frees[1], free)
    assert np.array_equal(halves[0] + halves[1], secret)
    for some in (*frees, *halves, free):
        counts = np.bincount(some >> np.uint32(28), minlength=16)
        assert ((counts - 1024) ** 2 / 1024).sum() < 60
    assert not np.array_equal(frees[0], frees[1])
