"""Agreement as Tazza's paper names it: practical Byzantine fault tolerance on the digest of a seed.

The seed is a head's: the participant whose turn it is to propose in one try, which is called a *view*.

It is Castro and Liskov's PBFT, for one value: pre-prepare, prepare, commit, and a change of view when a head does not
get it done. The value is the digest; the seed goes in boxes (encrypted, one for each reader), and whoever lacks it is
given it by those who hold it. Of n >= 3f + 1 participants f may be faulty: two quorums share an honest one, and f + 1
heads are not all faulty. It gives agreement and no more: a head chooses the seed, and may choose one that the relay
knows; the joint secret of `agree.commit_reveal` is not so. An outcome is for one round only, because not everybody has
to sign it: a client that heard nothing of the next outcome could otherwise go on using this one.

Used by `agree.seats` where `protocol.encode.by = "pbft"`; `croupier bench agree` disturbs it by faults.

Reveals: to the relay, who takes part, boxes, and the digest of the seed.
"""

from __future__ import annotations

from collections.abc import Mapping

from croupier.agree.agreement import AgreementCall, AgreementForm, ended
from croupier.agree.board import pass_on
from croupier.agree.pbft.replica import DECIDED, KEY, NOT_YET, Replica, Rules, helped
from croupier.agree.pbft.views import NONE, ViewTurns, heads
from croupier.agree.standing import Standing
from croupier.core.coins import Coins
from croupier.core.flow import Flow, Given, Memory, Party, SubFlow
from croupier.core.wire import Schema
from croupier.errors import SpecError
from croupier.mpc.joint import Terms


def pbft(faulty: int | None = None, views: int | None = None, previous: bytes = NONE) -> AgreementForm:
    """PBFT as a form of agreement; by default with as many faulty participants as there may be, and a view to spare."""

    def rules(call: AgreementCall) -> Rules:
        if call.last is None:
            raise SpecError(
                "PBFT agrees on the rule of one round: an outcome that not everybody signed could go on without "
                "somebody who holds an older one. Call it with AgreementCall.single"
            )
        most = call.faulty if faulty is None else faulty
        if not 0 <= most <= call.faulty:
            raise SpecError(
                f"faulty = {most}: of {len(call.roster)} clients at most {call.faulty} may be (n >= 3f + 1); "
                "expect fewer, or enrol more"
            )
        return Rules(most, most + 2 if views is None else views, previous)

    def client(call: AgreementCall) -> Party:
        known = rules(call)

        def flow(given: Given, memory: Memory, coins: Coins) -> Flow:
            terms = Terms.of(given, call.start, call.last)
            after: Memory = yield from ended(Replica(given, terms, memory["keys"], coins, Standing.of(memory), known))
            return after

        return flow

    def relay(call: AgreementCall) -> Party:
        known = rules(call)

        def flow(given: Given, memory: Memory, coins: Coins) -> Flow:
            yield from _relayed(given, known)
            return memory

        return flow

    def schemas(call: AgreementCall) -> Mapping[str, Schema]:
        turns = [KEY, *(t for number in range(rules(call).views) for t in ViewTurns(number, len(call.roster)).turns)]
        return {kind: schema for turn in turns for kind, schema in turn.schemas(call.roster).items()}

    return AgreementForm("pbft", client, relay, schemas)


def _relayed(given: Given, rules: Rules) -> SubFlow:
    """Notes in, notes out, until nobody has anything to say."""
    everyone = given.roster
    yield from pass_on(KEY, given, everyone, everyone)
    order = heads(everyone, given.round, rules.previous)
    for number in range(rules.views):
        view, head = ViewTurns(number, len(everyone)), order[number % len(order)]
        if number and not (yield from pass_on(view.change, given, everyone, (head,))):
            return
        yield from pass_on(view.propose, given, (head,), everyone, always=True)
        yield from pass_on(view.prepare, given, everyone, everyone, always=True)
        yield from pass_on(view.commit, given, everyone, everyone, always=True)
        notes = yield from pass_on(view.close, given, everyone, everyone)
        states = {who: bytes(notes[who]["state"].tolist()) if who in notes else NOT_YET for who in everyone}
        if helped(states):
            readers = tuple(who for who, state in states.items() if state != DECIDED)
            yield from pass_on(view.proof, given, everyone, readers, always=True)
