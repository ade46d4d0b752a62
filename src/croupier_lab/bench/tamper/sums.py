"""Cheat in a sum, one tampering a trial, and count whether a wrong sum was ever taken for right.

An escape is a sum that differs from the honest one of the clients it names, and that an honest client accepted or with
which the round loop would have gone on. `croupier bench tamper` runs it for sum servers and masks (`systems`). The ways
to tamper are the cells of `sum_tampering`: each is a kind of tampering at one place.

Sum servers have a control (`Unpadded`). A client's tag is the inner product of its vector and a secret vector, plus a
secret number, the pad; without pads every multiple of a true sum has a fitting tag, so that some of the same tampering
must get by. Masks have no tags, and so no control.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from croupier.core.attempt import AttemptResult
from croupier.core.coins import Coins
from croupier.core.flow import Letter, corrupt
from croupier.core.update import Update
from croupier.core.view import View
from croupier.core.wire import chosen
from croupier.engine.failure import alarmed
from croupier.engine.local import Local
from croupier.engine.post import Packet
from croupier.errors import CroupierError
from croupier.mpc.shares import unpacked
from croupier.pipeline import Pipeline
from croupier.place.masks import Masks
from croupier.place.placement import residue_bits
from croupier.place.servers import SumServers
from croupier.systems import sum_servers
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed.secure_sum import Seated, drawn, seated
from croupier_lab.bench.tamper.sum_alterations import CLIENTS, SERVERS, SumTrial, TamperedSum
from croupier_lab.bench.tamper.sum_tampering import SumTamperCell, System, cells
from croupier_lab.bench.tamper.verdicts import Verdict, counted, escaped, table

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
    """The control of sum servers: tags without pads, so that every multiple of a true sum has a fitting tag."""

    _padded: ClassVar[bool] = False


def measure(system: System, size: SumTamperSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Trials spread evenly over the cells; the control has a tenth as many, and no fewer than there are cells."""
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
    """Play the trials, and count how every kind of tampering ended."""
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
    # Besides the four that may misbehave: 0: nobody; 1: an honest fifth client, "c04"; 2: one that does not come.
    crowd = int(chance.below(3)[0])
    updates = drawn(params, len(CLIENTS) + (crowd > 0), coins.child("now"))
    # Where nobody stands between (masks), a missing client would end the round before anything is tampered with.
    absent = frozenset({"c04"}) if crowd == 2 and pipeline.place.middle(pipeline) else frozenset[str]()
    slots = pipeline.encode.slots(next(iter(updates.values())).layout)
    letters: dict[str, tuple[Letter, ...]] = {}
    packets: list[Packet] = []
    links = coins.child("links")
    if cell.before != "nothing":
        # What was summed then is not what is summed now, so that an old sum cannot be right by chance.
        earlier = seated(pipeline, drawn(params, len(updates), coins.child("old")), coins, quorum=2)
        _heard(pipeline, earlier, letters, packets, links)
    trial = SumTrial(pipeline, slots, tuple(updates), chance, letters, tuple(packets))
    tampered = cell.tamper(trial)
    now = seated(
        pipeline, updates, coins, round_=int(cell.before == "round"), attempt=int(cell.before == "attempt"), quorum=2
    )
    changed = {name: corrupt(now.attempt.parties[name], change) for name, change in tampered.changes.items()}
    parties = {**now.attempt.parties, **changed}
    attempt = replace(now.attempt, parties=parties, absent=absent, keep=dict.fromkeys(updates, "keep"))
    result = Local(links if tampered.network else None, tampered.network)(attempt)
    return _verdict(pipeline, updates, now, result, tampered)


def _heard(
    pipeline: Pipeline,
    earlier: Seated,
    letters: dict[str, tuple[Letter, ...]],
    packets: list[Packet],
    links: Coins,
) -> None:
    """Play an honest round, and note every letter and packet that is sent."""

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
    pipeline: Pipeline, updates: Mapping[str, Update], now: Seated, result: AttemptResult, tampered: TamperedSum
) -> Verdict:
    """Whether anybody honest took a wrong sum, and else whether the round loop would have gone on."""
    encode, bits = pipeline.encode, residue_bits(pipeline)
    own = {name: encode.encode(update, {}, Coins.from_seed(0)).vector.long() for name, update in updates.items()}

    def right(present: tuple[str, ...], sums: Tensor) -> bool:
        return torch.equal(torch.stack([own[name] for name in present]).sum(0) % (1 << bits), sums.long())

    roster = tuple(updates)
    content = [name for name in roster if name in result.outcomes and result.outcomes[name].error is None]
    for name in content:
        # The last thing that sum servers send a client is the published sum; with masks nothing comes.
        inbox = result.views[name].inputs[-1] if result.views[name].inputs else ()
        for letter in inbox if name not in tampered.changes else ():
            published = unpacked(letter.body["vector"], len(own[name]), bits)
            if not right(chosen(roster, letter.body["present"]), published):
                return "escapes"
    try:
        alarmed(0, roster, result)
    except CroupierError:
        return "aborted"
    if result.outcomes["server"].error is not None:
        return "aborted"
    released = tampered.result(now.got[0]) if tampered.result else now.got[0]
    if released.sums is None or ("server" not in tampered.changes and not right(released.present, released.sums)):
        return "escapes"
    return "harmless"


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"{found['system']}: {found['trials']} trials, {found['escapes']} escapes; {found['note']}")
    print(table(found))
    if control := found["control"]:
        print(f"control, tags without pads: {control['escapes']} escapes of {control['trials']} ({escaped(control)})")
