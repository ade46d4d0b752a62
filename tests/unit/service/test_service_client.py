"""What a client does when the server lies to it, repeats itself, or when its own store was put back from a backup."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.served import made

from croupier.core import canon
from croupier.core.envelope import HEADER_BYTES, Header
from croupier.engine.work import RoundWork
from croupier.errors import IntegrityError, StoreError
from croupier.service.client import Client
from croupier.service.doorway import Call, Tls
from croupier.service.member import SERVER, Member
from croupier.service.notice import END, ROUND, Notice
from croupier.service.options import Options
from croupier.service.store import Store, StoredLetter
from croupier.service.transport import ENDED, KEY_BYTES, LATER, OK, REFUSED, listen
from croupier_lab.bench.services.deployment import copy_store
from croupier_lab.bench.services.toy import PIPELINES, toy_task


@dataclass
class Liar:
    """A server that hands out what a test wants it to, and keeps what it gets."""

    member: Member
    says: list[bytes]
    answer: bytes = OK
    # Whether it goes on before it has an update of its first notice.
    hasty: bool = False
    models: int = 0
    got: list[tuple[Header, bytes]] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=lambda: {"key": b"", "kinds": ()})

    def tls(self) -> Tls:
        keys, trusted = self.member.keyring, "".join(card.certificate for card in self.member.roster.cards)
        return Tls(keys.tls_key_pem, keys.tls_cert_pem, trusted.encode())

    def caller(self, certificate: bytes, call: Call) -> str | None:
        return self.member.roster.party_of(certificate)

    def failed(self, caller: str | None, error: Exception) -> bytes:
        raise error

    def asked_to_wait(self, caller: str | None) -> bytes:
        return LATER

    async def put(self, caller: str | None, pieces: AsyncIterator[bytes]) -> bytes:
        whole = b"".join([piece async for piece in pieces])
        self.got.append((Header.unpack(whole[:HEADER_BYTES]), whole[HEADER_BYTES + KEY_BYTES :]))
        return self.answer

    async def take(self, caller: str | None, request: bytes) -> AsyncIterator[bytes]:
        wanted = canon.load(request)
        notice = next(one for one in self.notices if one.key == wanted["key"])
        if wanted["kind"] != "model":
            yield ENDED
            return
        self.models += 1
        schema = self.member.pipeline.schemas(self.member.given(notice, "", 0))["model"]
        fields = {one.name: torch.full(one.dims({}), 0.1 * self.models, dtype=torch.float32) for one in schema.fields}
        body = schema.pack(fields)
        ours = notice.attempt_id(self.member.pipeline.digest())
        head = Header(ours.header_spec, ours.run, ours.round, ours.attempt, "model", SERVER, str(caller), 0, len(body))
        yield head.pack() + body

    @property
    def notices(self) -> list[Notice]:
        public = self.member.keyring.public
        found = []
        for said in self.says:
            try:
                found.append(Notice.read(said, public))
            except Exception:
                continue
        return found

    async def opened(self, caller: str | None, request: bytes) -> bytes:
        after = int(canon.load(request)["after"])
        await asyncio.sleep(0.01)
        for said in list(self.says):
            if said not in [one.sign(self.member.keyring.identity) for one in self.notices]:
                # What is no notice is handed out once.
                self.says.remove(said)
                return said
        later = [one for one in self.notices if one.number > after and (self.got or self.hasty or one.number == 0)]
        return later[0].sign(self.member.keyring.identity) if later else b""

    async def ended(self, caller: str | None, request: bytes) -> bytes:
        return OK

    async def known(self, caller: str | None) -> bytes:
        return canon.dump(self.seen)


def members() -> dict[str, Member]:
    """A plain federation: the server is the only host."""
    return made(PIPELINES["plain"])


def notice_of(member: Member, number: int, **changed: Any) -> Notice:
    roster = member.roster
    return replace(Notice(number, ROUND, roster.digest, roster.run, 0, 0, roster.clients), **changed)


def end_of(member: Member, number: int) -> Notice:
    return notice_of(member, number, what=END, cohort=())


def run_client(every: dict[str, Member], liar: Liar, folder: Path) -> tuple[Client, list[tuple[str, dict[str, Any]]]]:
    """A real client of a lying server, to its end. Raises what the client raises."""
    told: list[tuple[str, dict[str, Any]]] = []

    async def main() -> Client:
        server, _ = await listen(liar, every[SERVER].roster.address(SERVER))
        task = toy_task(every[SERVER].roster.clients)
        options = Options(shard=task.shards["c0"], tell=lambda event, **facts: told.append((event, facts)))
        work = RoundWork(every["c0"].pipeline, task).by_name()
        client = Client(every["c0"], Store(folder), work, options)
        try:
            async with asyncio.timeout(15):
                await client.run()
        finally:
            await client.close()
            client.store.close()
            await server.stop(0.2)
        return client

    return asyncio.run(main()), told


def test_a_replayed_notice_with_another_model_gets_nothing(tmp_path: Path) -> None:
    every = members()
    own = every[SERVER]
    wanted = [notice_of(own, 0), notice_of(own, 1), notice_of(own, 2, attempt=1), end_of(own, 3)]
    liar = Liar(own, [one.sign(own.keyring.identity) for one in wanted])
    client, told = run_client(every, liar, tmp_path)
    assert [header.kind for header, _ in liar.got] == ["up"]
    assert client.counts["refused"] == 2
    whys = [facts["why"] for event, facts in told if event == "not played"]
    assert "was played before" in whys[0]
    assert "never starts one again" in whys[1]


def test_a_notice_that_the_server_did_not_sign(tmp_path: Path) -> None:
    every = members()
    own = every[SERVER]
    forged = notice_of(own, 0).sign(every["c1"].keyring.identity)
    liar = Liar(own, [forged, b"no notice at all", end_of(own, 1).sign(own.keyring.identity)], hasty=True)
    client, told = run_client(every, liar, tmp_path)
    assert liar.got == []
    assert client.counts["refused"] == 2
    assert next(facts["why"] for event, facts in told if event == "refused") == "a notice that the server did not sign"


def test_a_refused_letter_ends_the_round_for_its_sender(tmp_path: Path) -> None:
    every = members()
    own = every[SERVER]
    liar = Liar(own, [one.sign(own.keyring.identity) for one in (notice_of(own, 0), end_of(own, 1))], answer=REFUSED)
    _, told = run_client(every, liar, tmp_path)
    assert len(liar.got) == 1
    assert [facts["why"] for event, facts in told if event == "failed"] == [
        "server refused 'up' of c0: its operator was told why"
    ]


def test_a_letter_that_is_never_taken_is_no_cause_for_alarm(tmp_path: Path) -> None:
    """The host could not be reached until the server had gone on: the client was not in the round, and says so."""
    every = members()
    own = every[SERVER]
    liar = Liar(own, [one.sign(own.keyring.identity) for one in (notice_of(own, 0), end_of(own, 1))], answer=LATER)
    client, told = run_client(every, liar, tmp_path)
    assert [facts["why"] for event, facts in told if event == "failed"] == [
        "c0 reached server too late, and the round went on without it"
    ]
    assert client.counts["alarms"] == 0


@pytest.mark.parametrize("saved", ["before", "after"])
def test_a_store_that_was_put_back_from_a_backup(tmp_path: Path, saved: str) -> None:
    """From before the round: an alarm, and nothing is sent, also when it is started again. From after it: no harm."""
    every = members()
    own = every[SERVER]
    opening = notice_of(own, 0)
    signed = [one.sign(own.keyring.identity) for one in (opening, end_of(own, 1))]
    here, copy = tmp_path / "store", tmp_path / "copy"
    Store(here).close()
    if saved == "before":
        copy_store(here, copy)
    run_client(every, Liar(own, list(signed)), here)
    if saved == "after":
        copy_store(here, copy)
    liar = Liar(own, list(signed), hasty=True, seen={"key": opening.key, "kinds": ("up",)})
    if saved == "after":
        client, _ = run_client(every, liar, copy)
        assert client.counts["alarms"] == 0
    else:
        for _ in range(2):
            with pytest.raises(IntegrityError, match="restored backup"):
                run_client(every, liar, copy)
        store = Store(copy)
        assert b"restored backup" in (store.fact("alarm") or b"")
        store.close()
    assert liar.got == []


class Mute(Liar):
    """A server that says only that the run is over."""

    async def known(self, caller: str | None) -> bytes:
        return LATER


def test_a_client_that_comes_back_after_the_end_keeps_nothing_of_the_round_it_was_in(tmp_path: Path) -> None:
    every = members()
    own = every[SERVER]
    store, task = Store(tmp_path), toy_task(own.roster.clients)
    before = Client(every["c0"], store, RoundWork(own.pipeline, task).by_name(), Options(shard=task.shards["c0"]))
    key = notice_of(own, 0).key

    async def begun() -> None:
        await before.begin(notice_of(own, 0))
        await before.close()

    asyncio.run(begun())
    store.keep(key, StoredLetter(SERVER, "model", b"head", b"body")).result()
    store.close()
    run_client(every, Mute(own, [end_of(own, 1).sign(own.keyring.identity)], hasty=True), tmp_path)
    store = Store(tmp_path)
    assert store.state(key) == "failed"
    with pytest.raises(StoreError, match="the secrets of an attempt are gone"):
        list(store.letters(key))
    store.close()
