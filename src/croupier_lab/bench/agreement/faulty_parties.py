"""Put the faults of a schedule into the parties of an agreement, attempt after attempt.

Faulty clients hold their own keys and may sign whatever they like, and the relay may do anything to what it passes on.
Nobody holds an honest client's key: that is the adversary against whom the agreements must stay safe. `faults_and_cost`
(`croupier bench agree`) gives a `Mischief` to the agreement table, which calls it for each attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from croupier.agree.board import SERVER
from croupier.agree.pbft.votes import Votes
from croupier.core.attempt import Attempt
from croupier.core.coins import Stream
from croupier.core.flow import Change, Letter, corrupt
from croupier.core.view import View
from croupier.mpc.authentic import byte_tensor
from croupier.mpc.signatures import signed
from croupier_lab.bench.agreement.fault_schedules import CLIENT, RELAY, Fault, Schedule
from croupier_lab.bench.agreement.two_faced_clients import Body, Bundle, Twin, body_of, careless, tell, terms_of


@dataclass
class Mischief:
    """A schedule at work over several attempts; of each kind of note it keeps the latest, to replay them."""

    form: str
    schedule: Schedule
    chance: Stream
    keys: Mapping[str, Mapping[str, Any]] = field(repr=False)
    attempts: int = 0
    old: dict[str, dict[str, Body]] = field(default_factory=dict, repr=False)
    seen: dict[str, dict[str, Body]] = field(default_factory=dict, repr=False)
    twins: tuple[Twin, ...] = ()

    def __call__(self, attempt: Attempt) -> Attempt:
        """Put it into one attempt."""
        self.attempts += 1
        self.old, self.seen = {**self.old, **self.seen}, {}
        plan = self.schedule
        parties = dict(attempt.parties)
        if self.attempts <= plan.until:
            if plan.twins:
                if self.form == "joint":
                    parties |= dict.fromkeys(plan.faulty, careless())
                self.twins = tuple(Twin.wake(attempt, parties[who], who) for who in sorted(plan.faulty))
            for who in plan.faulty:
                parties[who] = corrupt(parties[who], self._client(who))
        parties[SERVER] = corrupt(parties[SERVER], self._relay)
        return replace(attempt, parties=parties)

    def _client(self, who: str) -> Change:
        faults = [fault for fault in self.schedule.faults if fault.who == who and fault.what in CLIENT]
        mute = False

        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            nonlocal mute
            for fault in faults:
                if letters and fault.hits(letters[0].kind):
                    mute = mute or fault.what == "silent"
                    letters = tuple(self._tampered(fault, letter, view) for letter in letters)
            return () if mute else letters

        return change

    def _tampered(self, fault: Fault, letter: Letter, view: View) -> Letter:
        body = body_of(letter)
        match fault.what:
            case "garble":
                return replace(letter, body=self._garbled(body))
            case "replay":
                return replace(letter, body=self.old.get(letter.kind, {}).get(self._any(), body))
            case "cross":
                rows = {k: v.roll(1, 0) if v.dim() == 2 else v for k, v in body.items()}
                return replace(letter, body=rows)
            case "lie" if set(body) == {"digest", "signature"}:
                return replace(letter, body=self._lie(fault.who, letter.kind, view))
        return letter

    def _lie(self, who: str, kind: str, view: View) -> Body:
        """A digest that means nothing, under a signature that is true."""
        digest, terms = bytes(self.chance.bytes(32)), terms_of(self.form, view.given)
        if "." in kind:
            name, number = kind.split(".")
            message = Votes(name, int(number), digest, {}).message(terms, who)
        else:
            message = terms.label("echo" if kind == "echo" else "digest", who, digest)
        return {"digest": byte_tensor(digest), "signature": byte_tensor(signed(self.keys[who]["identity"], message))}

    def _relay(self, letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        """What the relay hands out; it also keeps what it was sent, to send it again in a later attempt."""
        for letter in view.inputs[-1]:
            self.seen.setdefault(letter.kind, {})[letter.source] = letter.body
        plan = self.schedule
        if not letters or self.attempts > plan.until or not plan.relay:
            return letters
        roster = view.given.roster
        bundles = {letter.target: Bundle.of(roster, letter) for letter in letters}
        if plan.twins:
            tell(self.twins, bundles, plan)
        for fault in plan.faults:
            if fault.what in RELAY and fault.hits(letters[0].kind):
                for reader in sorted(fault.readers & set(bundles)):
                    self._spoil(fault, bundles, reader)
        return tuple(bundle.letter(roster) for bundle in bundles.values())

    def _spoil(self, fault: Fault, bundles: dict[str, Bundle], reader: str) -> None:
        bundle, who = bundles[reader], fault.who
        other = self._any()
        match fault.what:
            case "withhold":
                del bundles[reader]
            case "drop":
                bundle.rows.pop(who, None)
            case "swap" if who in bundle.rows and other in bundle.rows:
                bundle.rows[who], bundle.rows[other] = bundle.rows[other], bundle.rows[who]
            case "garble" if who in bundle.rows:
                bundle.rows[who] = self._garbled(bundle.rows[who])
            case "replay":
                kind = bundle.kind.removesuffix(" all")
                if who in self.old.get(kind, {}):
                    bundle.rows[who] = bundle.cut(self.old[kind][who], reader, self.schedule.clients)

    def _garbled(self, body: Body) -> Body:
        names = sorted(name for name in body if body[name].numel())
        name = names[int(self.chance.below(len(names))[0])]
        values = body[name].clone()
        values.view(-1)[int(self.chance.below(values.numel())[0])] ^= 1 + int(self.chance.below(255)[0])
        return {**body, name: values}

    def _any(self) -> str:
        names = self.schedule.clients
        return names[int(self.chance.below(len(names))[0])]
