"""PBFT on a digest: with f of 3f + 1 faulty all honest decide the same, whatever a head does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import pytest
from tests.boards import Bend, all_of, bent, call, handing, names, once, saying, silent, single, table
from torch import Tensor

from croupier.agree.board import SERVER
from croupier.agree.pbft import agreement as module
from croupier.agree.pbft import replica
from croupier.agree.pbft.agreement import pbft
from croupier.agree.pbft.replica import Replica
from croupier.agree.pbft.views import NONE, PreparedClaim, heads, justified, pack_claims, unpack_claims
from croupier.agree.pbft.votes import Votes, quorum
from croupier.core.epoch import Epoch
from croupier.core.flow import Letter
from croupier.core.view import View, replay
from croupier.errors import SpecError
from croupier.mpc.authentic import byte_tensor
from croupier.mpc.joint import Terms, rule_digest
from croupier.mpc.signatures import signed
from croupier_lab.bench.agreement.faults_and_cost import leaks
from croupier_lab.bench.agreement.table import AgreementAttempt, settle
from croupier_lab.bench.agreement.two_faced_clients import Bundle

Body = Mapping[str, Tensor]
ORDER = heads(names(4), 0, NONE)
HEAD = ORDER[0]
REST = tuple(name for name in names(4) if name != HEAD)


def decided(tried: AgreementAttempt, *who: str) -> bytes:
    """These and no others hold one and the same secret."""
    assert set(tried.held) == set(who), tried.aborts
    (secret,) = {standing.secret for standing in tried.held.values()}
    return secret


@pytest.mark.parametrize("count", [4, 5, 6, 7, 10])
def test_everybody_decides_for_the_heads_seed_in_the_first_view(count: int) -> None:
    tried = once(pbft(), single(count, 3), table(count))
    secret = decided(tried, *names(count))
    head = heads(names(count), 3, NONE)[0]
    assert secret == tried.result.views[head].coins.child("seed", 0).export()
    assert tried.held["c0"].epoch == Epoch(3, 3, names(count), tried.held["c1"].epoch.digest, 3)  # type: ignore[union-attr]
    assert leaks({secret}, [tried.result.views[SERVER]]) == 0
    # Keys, a proposal, prepares, commits, and how far everybody got: each there and back.
    assert tried.result.traffic.messages == 9 * count + 1


def test_views_replay() -> None:
    at = table(tamper=silent(HEAD, "propose.0"))
    attempt = at.attempt(pbft(), single())
    result = at.drive(at.tamper(attempt))
    for name in (*REST, SERVER):
        assert replay(attempt.parties[name], result.views[name])[1] == result.outcomes[name].memory


def test_quorums_share_an_honest_one() -> None:
    for count in range(4, 14):
        faulty = (count - 1) // 3
        need = quorum(count, faulty)
        assert 2 * need - count > faulty
        assert need <= count - faulty
    assert [quorum(3 * f + 1, f) for f in (1, 2, 3)] == [3, 5, 7]
    with pytest.raises(SpecError, match=r"PBFT agrees on the rule of one round.*with AgreementCall\.single"):
        once(pbft(), call(4), table())
    with pytest.raises(SpecError, match=r"faulty = 2: of 6 clients at most 1 may be \(n >= 3f \+ 1\)"):
        once(pbft(2), single(6), table(6))


def test_heads_follow_each_other_by_hash_and_nobody_twice() -> None:
    assert sorted(ORDER) == list(names(4))
    orders = {heads(names(4), number, previous) for number in range(20) for previous in (NONE, b"\x01" * 32)}
    assert len(orders) > 12
    assert {order[0] for order in orders} == set(names(4))


@pytest.mark.parametrize("count", [4, 7])
def test_f_silent_clients_stop_nobody_whoever_they_are(count: int) -> None:
    faulty = (count - 1) // 3
    for gone in list(combinations(names(count), faulty))[:: 1 if count == 4 else 5]:
        at = table(count, tamper=lambda attempt, gone=gone: replace(attempt, absent=frozenset(gone)))
        decided(once(pbft(), single(count), at), *(name for name in names(count) if name not in gone))


@pytest.mark.parametrize("turn", ["key", "propose.0", "prepare.0", "commit.0", "close.0"])
def test_a_head_that_falls_silent_is_replaced_or_not_needed(turn: str) -> None:
    tried = once(pbft(), single(), table(tamper=silent(HEAD, turn)))
    assert set(REST) <= set(tried.held)
    decided(tried, *tried.held)


def test_a_head_whose_boxes_are_empty_is_replaced() -> None:
    def empty(body: Body, view: View) -> Body:
        return {**body, "box": body["box"] * 0}

    tried = once(pbft(), single(), table(tamper=saying(HEAD, "propose.0", empty)))
    secret = decided(tried, *names(4))
    assert secret == tried.result.views[ORDER[1]].coins.child("seed", 1).export()


def test_one_whose_box_is_empty_is_given_the_seed_by_the_others() -> None:
    def partly(body: Body, view: View) -> Body:
        boxes = body["box"].clone()
        boxes[names(4).index(REST[0])] = 0
        return {**body, "box": boxes}

    tried = once(pbft(), single(), table(tamper=saying(HEAD, "propose.0", partly)))
    secret = decided(tried, *names(4))
    assert secret == tried.result.views[HEAD].coins.child("seed", 0).export()
    assert any(m.kind == "proof.0 all" for inbox in tried.result.views[REST[0]].inputs for m in inbox)


def test_one_that_missed_the_commits_is_shown_the_proof() -> None:
    late = REST[1]
    cut = handing("commit.0", lambda bundle: None if bundle.target == late else bundle)
    decided(once(pbft(), single(), table(tamper=cut)), *names(4))


def test_what_a_quorum_prepared_is_carried_into_the_next_view() -> None:
    """Nobody hears a commit in the first view: the next head must propose the same digest."""
    tried = once(pbft(), single(), table(tamper=handing("commit.0", lambda bundle: None)))
    secret = decided(tried, *names(4))
    assert secret == tried.result.views[HEAD].coins.child("seed", 0).export()
    assert any(m.kind == "propose.1 all" for inbox in tried.result.views["c0"].inputs for m in inbox)


def _deaf(view: int) -> Bend:
    """In a view only c-first hears commits, and nobody hears how far others got, or proofs."""
    first = REST[0]
    return all_of(
        handing(f"commit.{view}", lambda bundle: bundle if bundle.target == first else None),
        handing(f"close.{view}", lambda bundle: replace(bundle, rows={})),
        handing(f"proof.{view}", lambda bundle: None),
    )


class Forgetful(Replica):
    """A head that proposes a seed of its own, whatever was prepared."""

    def _proposal(self, view, told):  # type: ignore[no-untyped-def]
        seed = self.coins.child("mine", view.number).export()
        digest = rule_digest(self.given.run, self.given.round, seed)
        self.seeds[digest] = seed
        claims = {who: claim for who in told if (claim := self._believed(view, who, told[who])) is not None}
        sign = signed(self.keys["identity"], self.terms.label("propose", self.given.me, view.number, digest))
        votes = Votes("prepare", 0, digest, {}).pack(self.given.roster)
        shown = {**pack_claims(self.given.roster, claims), **votes} if view.number else {}
        boxes = self._boxes(digest, self.given.roster, view, "seed")
        return {"digest": digest, "signature": sign, **shown, "box": boxes}


@pytest.mark.parametrize("blind", [False, True], ids=["checked", "planted: unchecked"])
def test_a_head_that_forgets_what_was_decided_is_not_followed(blind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One client decided in the first view; if the second head could propose anew, the rest would decide otherwise."""
    honest = Replica
    second = ORDER[1] if ORDER[1] != REST[0] else ORDER[2]

    def seated(given, *rest):  # type: ignore[no-untyped-def]
        return (Forgetful if given.me == second else honest)(given, *rest)

    monkeypatch.setattr(module, "Replica", seated)
    if blind:
        monkeypatch.setattr(replica, "justified", lambda *_: 0)
    tamper = _deaf(0) if second == ORDER[1] else all_of(_deaf(0), silent(ORDER[1], "propose.1"))
    tried = once(pbft(), single(), table(tamper=tamper))
    assert REST[0] in tried.held
    secrets = {standing.secret for who, standing in tried.held.items() if who != second}
    assert (len(secrets) > 1) is blind


def test_a_proposal_must_show_a_quorum_of_true_claims_and_votes() -> None:
    at, terms = table(), single().terms
    public = at.keys["c0"]["public"]
    digest, other = b"\x01" * 32, b"\x02" * 32

    def claim(who: str, view: int, of: bytes) -> PreparedClaim:
        bare = PreparedClaim(view, of)
        return replace(bare, signature=signed(at.keys[who]["identity"], bare.message(terms, who, 1)))

    votes = Votes("prepare", 0, digest, {})
    votes = replace(votes, signatures={w: signed(at.keys[w]["identity"], votes.message(terms, w)) for w in names(3)})
    none = replace(votes, signatures={})
    new = {who: claim(who, 0, NONE) for who in names(4)}
    old = {**new, "c2": claim("c2", 1, digest)}

    def verdict(claims: Mapping[str, PreparedClaim], proposed: bytes, shown: Votes) -> int | None:
        note = {**pack_claims(names(4), claims), **shown.pack(names(4))}
        assert unpack_claims(names(4), note) == claims
        return justified(proposed, 1, note, terms, public, names(4), 3)

    assert verdict(new, other, none) == 0
    assert verdict(old, digest, votes) == 1
    assert verdict(old, other, votes) is None
    assert verdict(old, digest, none) is None
    assert verdict(old, digest, replace(votes, signatures=dict(list(votes.signatures.items())[:2]))) is None
    assert verdict({who: new[who] for who in names(2)}, other, none) is None
    assert verdict({**new, "c1": replace(new["c1"], signature=bytes(64))}, other, none) is None
    assert verdict({**new, "c1": claim("c1", 2, digest)}, digest, votes) is None
    assert verdict({**new, "c1": replace(old["c2"])}, digest, votes) is None


def test_votes_count_once_and_only_when_true() -> None:
    def lie(body: Body, view: View) -> Body:
        message = Votes("commit", 0, bytes(32), {}).message(Terms.of(view.given, 0, 0), "c1")
        return {
            "digest": byte_tensor(bytes(32)),
            "signature": byte_tensor(signed(table().keys["c1"]["identity"], message)),
        }

    decided(once(pbft(), single(), table(tamper=saying("c1", "commit.0", lie))), *names(4))

    def copy(bundle: Bundle) -> Bundle:
        """One vote under everybody's name."""
        return replace(bundle, rows=dict.fromkeys(bundle.rows, bundle.rows["c0"]))

    tried = once(pbft(views=1), single(), table(tamper=handing("commit.0", copy)))
    assert tried.held == {}
    assert all("no decision in 1 views" in why for why in tried.aborts.values())
    assert tried.complaints["c0" if HEAD != "c0" else "c1"].keys() == {HEAD}


def test_a_relay_that_hands_out_nothing_ends_in_a_named_abort() -> None:
    def nothing(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return ()

    tried = once(pbft(), single(), table(tamper=bent(SERVER, nothing)))
    assert tried.held == {}
    assert all("no decision in 3 views" in why for why in tried.aborts.values())


def test_who_committed_signs_no_other_outcome_for_the_number() -> None:
    at = table(tamper=_deaf(0))
    one = once(pbft(views=1), single(), at)
    decided(one, REST[0])
    again = once(pbft(), replace(single(), attempt=1), table(standings=one.standings))
    assert again.held == {}
    assert all("signed already" in why for why in again.aborts.values())
    settled = settle(pbft(), one.call.again(one.standings), table(standings=one.standings))
    assert settled.epoch.number == 1
