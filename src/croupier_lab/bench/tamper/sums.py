"""What becomes of a sum when somebody cheats: one tampering a trial, and whether a wrong sum was ever taken for right.

An escape is a sum that differs from the honest one of the clients it names, and that an honest client was content with
or the round loop would have gone on with. The same tampering is tried on tags without pads, which must let some by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from croupier.core.attempt import AttemptResult
from croupier.core.coins import Coins, Stream
from croupier.core.flow import Change, Inbox, Letter, corrupt
from croupier.core.update import Update
from croupier.core.view import View
from croupier.core.wire import chosen
from croupier.encode.encoder import Released
from croupier.engine.failure import alarmed
from croupier.engine.local import Local
from croupier.engine.post import Network, Packet
from croupier.errors import CroupierError
from croupier.kernels.shares import P
from croupier.pipeline import Pipeline
from croupier.place.masks import Masks
from croupier.place.placement import residue_bits
from croupier.place.servers import SumServers
from croupier.systems import sum_servers
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed.secure_sum import Seated, drawn, seated
from croupier_lab.bench.tamper.verdicts import Verdict, body_of, counted, escaped, exchanged, filled, places, table

System = Literal["sum-servers", "masks"]
SERVERS = ("sum1", "sum2", "sum3")
# Clients that misbehave are among these; a fifth may be there, honest, or absent.
CLIENTS = ("c00", "c01", "c02", "c03")
FIELDS = {
    "share": ("vector", "tag"), "seed": ("seed",), "here": ("present",), "sum": ("present", "vector", "tag"),
    "published": ("present", "vector", "tag"), "up": ("vector",),
}  # fmt: skip
SENDERS: dict[System, dict[str, tuple[str, ...]]] = {
    "sum-servers": {"share": CLIENTS, "seed": CLIENTS, "here": SERVERS, "sum": SERVERS, "published": ("server",)},
    "masks": {"up": CLIENTS},
}
NOTES: dict[System, str] = {
    "sum-servers": "clients check the published sum: no escape is expected",
    "masks": "masks have no integrity: what a client or the server alters is an escape by design; only the network's "
    "tampering is caught",
}


class SumTamperSize(BenchSize):
    """How much is tried: trials, and numbers a vector."""

    trials: int = Field(10_000, ge=1)
    params: int = Field(12, ge=2)


class Unpadded(SumServers):
    """The control: tags without pads, of which every multiple of a true sum carries a fitting one."""

    _padded: ClassVar[bool] = False


@dataclass(frozen=True)
class SumTrial:
    """What whoever tampers can use: the protocol, chance, and all that was sent in a round or attempt before."""

    pipeline: Pipeline
    clients: tuple[str, ...]
    chance: Stream
    letters: Mapping[str, tuple[Letter, ...]]
    packets: tuple[Packet, ...]

    def pick(self, limit: int) -> int:
        """A choice below a limit."""
        return int(self.chance.below(limit)[0])


@dataclass(frozen=True)
class BentSum:
    """A tampering: parties that rewrite what they send, a network that alters packets, a server that alters its sum."""

    changes: Mapping[str, Change] = field(default_factory=dict)
    network: Network | None = None
    result: Callable[[Released], Released] | None = None


Before = Literal["nothing", "round", "attempt"]


@dataclass(frozen=True)
class SumTamperCell:
    """A kind of tampering at one place, and what must have happened before."""

    kind: str
    bend: Callable[[SumTrial], BentSum]
    before: Before = "nothing"


def measure(system: System, size: SumTamperSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Trials spread evenly over kinds, parties and messages; the control has a tenth of them, and every cell."""
    pipeline = sum_servers(5, servers=len(SERVERS))
    if system == "masks":
        pipeline = pipeline.model_copy(update={"place": Masks()})
    coins = Coins.from_seed(seed)
    found = tally(pipeline, system, size.trials, size.params, coins, watch)
    control: dict[str, Any] = {}
    if system == "sum-servers":
        watch("the control")
        loose = pipeline.model_copy(update={"place": Unpadded(servers=len(SERVERS))})
        fewer = max(len(cells(system)), size.trials // 10)
        control = tally(loose, system, fewer, size.params, coins.child("control"), watch)
    return {"system": system, "params": size.params, "note": NOTES[system], **found, "control": control}


def tally(pipeline: Pipeline, system: System, trials: int, params: int, coins: Coins, watch: Watch) -> dict[str, Any]:
    """How every kind of tampering ended."""
    every = cells(system)

    def ended() -> Iterator[tuple[str, Verdict]]:
        for number in range(trials):
            cell = every[number % len(every)]
            yield cell.kind, attempted(pipeline, cell, params, coins.child("trial", number))
            if number and number % 1000 == 0:
                watch(f"{number} trials")

    return counted(ended())


def attempted(pipeline: Pipeline, cell: SumTamperCell, params: int, coins: Coins) -> Verdict:
    """One trial: an honest round or attempt before where the tampering needs it, then the one that is tampered with."""
    chance = coins.child("tampering").secure()
    crowd = int(chance.below(3)[0])
    updates = drawn(params, len(CLIENTS) + (crowd > 0), coins.child("now"))
    absent = frozenset({"c04"}) if crowd == 2 and not isinstance(pipeline.place, Masks) else frozenset[str]()
    letters: dict[str, tuple[Letter, ...]] = {}
    packets: list[Packet] = []
    links = coins.child("links")
    if cell.before != "nothing":
        # What was summed then is not what is summed now, so that an old sum cannot be right by chance.
        earlier = seated(pipeline, drawn(params, len(updates), coins.child("old")), coins, quorum=2)
        _heard(pipeline, earlier, letters, packets, links)
    trial = SumTrial(pipeline, tuple(updates), chance, letters, tuple(packets))
    bent = cell.bend(trial)
    now = seated(
        pipeline, updates, coins, round_=int(cell.before == "round"), attempt=int(cell.before == "attempt"), quorum=2
    )
    changed = {name: corrupt(now.attempt.parties[name], change) for name, change in bent.changes.items()}
    parties = {**now.attempt.parties, **changed}
    attempt = replace(now.attempt, parties=parties, absent=absent, keep=dict.fromkeys(updates, "keep"))
    result = Local(links if bent.network else None, bent.network)(attempt)
    return _verdict(pipeline, updates, now, result, bent)


def _heard(
    pipeline: Pipeline,
    earlier: Seated,
    letters: dict[str, tuple[Letter, ...]],
    packets: list[Packet],
    links: Coins,
) -> None:
    """Sit through an honest round, and take down everything that is sent."""

    def listen(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        letters[view.party] = (*letters.get(view.party, ()), *sent)
        return sent

    def carry(mail: list[Packet]) -> list[Packet]:
        packets.extend(mail)
        return mail

    parties = {name: corrupt(party, listen) for name, party in earlier.attempt.parties.items()}
    result = Local(links, carry)(replace(earlier.attempt, parties=parties))
    if wrong := [outcome.error for outcome in result.outcomes.values() if outcome.error]:
        raise wrong[0]


def _verdict(
    pipeline: Pipeline, updates: Mapping[str, Update], now: Seated, result: AttemptResult, bent: BentSum
) -> Verdict:
    """Whether anybody honest took a wrong sum, and else whether the round loop would have gone on."""
    encode, modulus = pipeline.encode, 1 << residue_bits(pipeline)
    own = {name: encode.encode(update, {}, Coins.from_seed(0)).vector.long() for name, update in updates.items()}

    def right(present: tuple[str, ...], sums: Tensor) -> bool:
        return torch.equal(torch.stack([own[name] for name in present]).sum(0) % modulus, sums.long())

    roster = tuple(updates)
    content = [name for name in roster if name in result.outcomes and result.outcomes[name].error is None]
    for name in content:
        inbox = result.views[name].inputs[-1] if result.views[name].inputs else ()
        for letter in inbox if name not in bent.changes else ():
            if not right(chosen(roster, letter.body["present"]), letter.body["vector"]):
                return "escapes"
    try:
        alarmed(0, roster, result)
    except CroupierError:
        return "aborted"
    if result.outcomes["server"].error is not None:
        return "aborted"
    released = bent.result(now.got[0]) if bent.result else now.got[0]
    if released.sums is None or ("server" not in bent.changes and not right(released.present, released.sums)):
        return "escapes"
    return "harmless"


def cells(system: System) -> list[SumTamperCell]:
    """Every tampering that is tried."""
    found = [*_single(SENDERS[system]), *_network()]
    return [*found, *(_by_servers() if system == "sum-servers" else _by_masked())]


def _single(senders: Mapping[str, tuple[str, ...]]) -> Iterator[SumTamperCell]:
    """One party, one of its messages."""
    for kind, parties in senders.items():
        for party in parties:
            for name in FIELDS[kind]:
                yield SumTamperCell("flip", _one(party, kind, _flip(name)))
                if kind == "published":
                    yield SumTamperCell("flip", _all(party, kind, _flip(name)))
                if name == "vector":
                    yield SumTamperCell("swap", _one(party, kind, _swapped))
            yield SumTamperCell("drop", _edit(party, kind, lambda letters, at: letters[:at] + letters[at + 1 :]))
            yield SumTamperCell("repeat", _edit(party, kind, lambda letters, at: (*letters, letters[at])))
            last = FIELDS[kind][-1]
            yield SumTamperCell("repeat", _repeat_altered(party, kind, _flip(last)))
            if kind in ("seed", "here", "published"):
                yield SumTamperCell("swap", _edit(party, kind, exchanged))


def _network() -> Iterator[SumTamperCell]:
    """The carrier of sealed packets."""

    def flipped(trial: SumTrial, mail: list[Packet], at: int) -> list[Packet]:
        data = bytearray(mail[at].data)
        data[trial.pick(len(data))] ^= 1 << trial.pick(8)
        return [*mail[:at], replace(mail[at], data=bytes(data)), *mail[at + 1 :]]

    def swapped(trial: SumTrial, mail: list[Packet], at: int) -> list[Packet]:
        other = trial.pick(len(mail))
        mail = list(mail)
        one, two = mail[at], mail[other]
        mail[at], mail[other] = replace(one, data=two.data), replace(two, data=one.data)
        return mail

    yield SumTamperCell("flip", _carried(flipped))
    yield SumTamperCell("drop", _carried(lambda trial, mail, at: mail[:at] + mail[at + 1 :]))
    yield SumTamperCell("repeat", _carried(lambda trial, mail, at: [*mail, mail[at]]))
    yield SumTamperCell("swap", _carried(swapped))

    def old(add: bool) -> Callable[[SumTrial, list[Packet], int], list[Packet]]:
        def change(trial: SumTrial, mail: list[Packet], at: int) -> list[Packet]:
            same = [p for p in trial.packets if (p.source, p.target) == (mail[at].source, mail[at].target)]
            return [*same, *mail] if add else [*mail[:at], *same[-1:], *mail[at + 1 :]]

        return change

    for add in (False, True):
        yield SumTamperCell("replay", _carried(old(add)), "round")
        yield SumTamperCell("reuse", _carried(old(add)), "attempt")


def _by_servers() -> Iterator[SumTamperCell]:
    """What sum servers and the server can do together or alone."""
    for factor in (0, -1, 2):
        for server in SERVERS:
            yield SumTamperCell("scale", _one(server, "sum", _scaled(factor)))
        yield SumTamperCell("scale", _together(SERVERS, "sum", _scaled(factor)))
        yield SumTamperCell("scale", _all("server", "published", _scaled(factor)))
        yield SumTamperCell("equivocate", _one("server", "published", _scaled(factor)))
    for place, victim in enumerate(CLIENTS):
        for how, times in (("leave out", -1), ("double", 1)):
            yield SumTamperCell(how, _counted(SERVERS, victim, times))
            yield SumTamperCell(how, _counted((SERVERS[place % len(SERVERS)],), victim, times))
        yield SumTamperCell("leave out, named", _counted(SERVERS, victim, -1, named=True))
        yield SumTamperCell("leave out, named", _counted(SERVERS, victim, -1, named=True, told=False))
        for server in SERVERS:
            yield SumTamperCell("equivocate", _one(server, "here", _marked(place)))
        yield SumTamperCell("equivocate", _one("server", "published", _marked(place)))
    for name in FIELDS["published"]:
        yield SumTamperCell("equivocate", _one("server", "published", _flip(name)))
    for server in SERVERS:
        yield SumTamperCell("silence", _silenced(server))
    earlier: tuple[tuple[str, Before], ...] = (("replay", "round"), ("reuse", "attempt"))
    for kind, before in earlier:
        for server in SERVERS:
            yield SumTamperCell(kind, _old((server,), ("sum",)), before)
        yield SumTamperCell(kind, _old(SERVERS, ("sum",)), before)
        yield SumTamperCell(kind, _old(("server",), ("published",)), before)
        yield SumTamperCell(kind, _old(("server",), ("published",), one=True), before)
        yield SumTamperCell(kind, _old(CLIENTS, ("share", "seed")), before)
        for client in CLIENTS:
            yield SumTamperCell(kind, _old((client,), ("share", "seed")), before)


def _by_masked() -> Iterator[SumTamperCell]:
    """What clients and the server can do where nobody checks."""

    def altered(trial: SumTrial) -> BentSum:
        def result(got: Released) -> Released:
            letter = Letter("server", "up", {"vector": torch.empty(0) if got.sums is None else got.sums})
            return replace(got, sums=body_of(_flip("vector")(trial, letter))["vector"])

        return BentSum(result=result)

    yield SumTamperCell("flip", altered)
    for client in CLIENTS:
        for factor in (0, -1, 2):
            yield SumTamperCell("scale", _one(client, "up", _scaled(factor)))
        yield SumTamperCell("replay", _old((client,), ("up",)), "round")
        yield SumTamperCell("reuse", _old((client,), ("up",)), "attempt")


Alter = Callable[[SumTrial, Letter], Letter]
Edit = Callable[[tuple[Letter, ...], int], tuple[Letter, ...]]


def _flip(name: str) -> Alter:
    """One value becomes another that the field can hold."""

    def alter(trial: SumTrial, letter: Letter) -> Letter:
        values = body_of(letter)[name].clone()
        limit = {"present": 2, "seed": 256, "tag": P, "vector": 1 << residue_bits(trial.pipeline)}[name]
        at = trial.pick(len(values))
        values[at] = (int(values[at]) + 1 + trial.pick(limit - 1)) % limit
        return filled(letter, **{name: values})

    return alter


def _swapped(trial: SumTrial, letter: Letter) -> Letter:
    """Two values change places."""
    values = body_of(letter)["vector"].clone()
    one = trial.pick(len(values))
    two = (one + 1 + trial.pick(len(values) - 1)) % len(values)
    values[[one, two]] = values[[two, one]]
    return filled(letter, vector=values)


def _scaled(factor: int) -> Alter:
    """The vector and its tag, where there is one, times a number."""

    def alter(trial: SumTrial, letter: Letter) -> Letter:
        vector = body_of(letter)["vector"]
        fields = {"vector": (vector.long() * factor % (1 << residue_bits(trial.pipeline))).to(vector.dtype)}
        if "tag" in FIELDS[letter.kind]:
            fields["tag"] = torch.tensor([int(body_of(letter)["tag"][0]) * factor % P])
        return filled(letter, **fields)

    return alter


def _marked(place: int) -> Alter:
    """One client more or less is named."""

    def alter(trial: SumTrial, letter: Letter) -> Letter:
        present = body_of(letter)["present"].clone()
        present[place] ^= 1
        return filled(letter, present=present)

    return alter


def _edit(party: str, kind: str, edit: Edit) -> Callable[[SumTrial], BentSum]:
    """A party does something with one of its letters of a kind."""

    def bend(trial: SumTrial) -> BentSum:
        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            found = places(letters, kind)
            return edit(letters, found[trial.pick(len(found))]) if found else letters

        return BentSum({party: change})

    return bend


def _one(party: str, kind: str, alter: Alter) -> Callable[[SumTrial], BentSum]:
    """A party alters one of its letters of a kind."""
    return lambda trial: _edit(
        party, kind, lambda letters, at: (*letters[:at], alter(trial, letters[at]), *letters[at + 1 :])
    )(trial)


def _repeat_altered(party: str, kind: str, alter: Alter) -> Callable[[SumTrial], BentSum]:
    """A party sends a letter, and another version of it after."""
    return lambda trial: _edit(party, kind, lambda letters, at: (*letters, alter(trial, letters[at])))(trial)


def _together(parties: tuple[str, ...], kind: str, alter: Alter) -> Callable[[SumTrial], BentSum]:
    """Several parties alter all of their letters of a kind alike."""

    def bend(trial: SumTrial) -> BentSum:
        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            return tuple(alter(trial, letter) if letter.kind == kind else letter for letter in letters)

        return BentSum(dict.fromkeys(parties, change))

    return bend


def _all(party: str, kind: str, alter: Alter) -> Callable[[SumTrial], BentSum]:
    """A party sends everybody the same altered letter."""

    def bend(trial: SumTrial) -> BentSum:
        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            found = places(letters, kind)
            if not found:
                return letters
            body = alter(trial, letters[found[0]]).body
            return tuple(replace(letter, body=body) if letter.kind == kind else letter for letter in letters)

        return BentSum({party: change})

    return bend


def _counted(
    servers: tuple[str, ...], victim: str, times: int, named: bool = False, told: bool = True
) -> Callable[[SumTrial], BentSum]:
    """Servers add a client once more or take it out again. `named`: they no longer name it; not `told`: it is sent no
    sum."""

    def bend(trial: SumTrial) -> BentSum:
        place, modulus = trial.pipeline.place, 1 << residue_bits(trial.pipeline)
        if not isinstance(place, SumServers):
            raise AssertionError("only sum servers add shares")

        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            inboxes: list[Inbox] = view.inputs
            its = tuple(letter for inbox in inboxes[:2] for letter in inbox if letter.source == victim)
            sums, tag = place._added(trial.pipeline, view.given, its)

            def altered(letter: Letter) -> Letter:
                vector, present = body_of(letter)["vector"], body_of(letter)["present"].clone()
                if named:
                    present[view.given.roster.index(victim)] = 0
                return filled(
                    letter,
                    present=present,
                    vector=((vector.long() + times * sums.long()) % modulus).to(vector.dtype),
                    tag=torch.tensor([(int(body_of(letter)["tag"][0]) + times * tag) % P]),
                )

            return tuple(altered(letter) if letter.kind == "sum" else letter for letter in letters)

        def quiet(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            return tuple(letter for letter in letters if letter.target != victim)

        return BentSum({**dict.fromkeys(servers, change), **({} if told else {"server": quiet})})

    return bend


def _silenced(server: str) -> Callable[[SumTrial], BentSum]:
    """A sum server alters its sum, and the network keeps what is published from every client."""

    def bend(trial: SumTrial) -> BentSum:
        bent = _one(server, "sum", _flip("vector"))(trial)
        return replace(bent, network=lambda mail: [p for p in mail if p.source != "server"])

    return bend


def _old(parties: tuple[str, ...], kinds: tuple[str, ...], one: bool = False) -> Callable[[SumTrial], BentSum]:
    """Parties send again what they sent before, to one or to all."""

    def bend(trial: SumTrial) -> BentSum:
        lucky = trial.clients[trial.pick(len(CLIENTS))]

        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            old = {(letter.target, letter.kind): letter for letter in trial.letters[view.party]}
            again = {to for to, _ in old if not one or to == lucky}
            return tuple(
                old[letter.target, letter.kind] if letter.kind in kinds and letter.target in again else letter
                for letter in letters
            )

        return BentSum(dict.fromkeys(parties, change))

    return bend


def _carried(change: Callable[[SumTrial, list[Packet], int], list[Packet]]) -> Callable[[SumTrial], BentSum]:
    """The network does something with one of its packets: any one, counted over the whole round."""

    def bend(trial: SumTrial) -> BentSum:
        at, seen = trial.pick(len(trial.clients) * _posts(trial.pipeline)), 0

        def carry(mail: list[Packet]) -> list[Packet]:
            nonlocal seen
            place, seen = at - seen, seen + len(mail)
            return change(trial, mail, place) if 0 <= place < len(mail) else mail

        return BentSum(network=carry)

    return bend


def _posts(pipeline: Pipeline) -> int:
    """Packets that a client sends and gets in a round."""
    return len(SERVERS) + 1 if isinstance(pipeline.place, SumServers) else 1


def show(found: dict[str, Any]) -> None:
    """The same numbers for people."""
    print(f"{found['system']}: {found['trials']} trials, {found['escapes']} escapes; {found['note']}")
    print(table(found))
    if control := found["control"]:
        print(f"control, tags without pads: {control['escapes']} escapes of {control['trials']} ({escaped(control)})")
