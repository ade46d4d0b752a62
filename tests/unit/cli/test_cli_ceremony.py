"""The key ceremony, as people type it: keygen, enrol, accept, group, rotate."""

from __future__ import annotations

import datetime as dt
import json
import stat
import tomllib
from pathlib import Path

import pytest
import typer
from tests.shell import Shell

from croupier.cli import ceremony
from croupier.service import identity
from croupier.service.home import Home
from croupier.service.roster import Roster

HOSTS = ("server", "sum1", "sum2")
CLIENTS = ("ann", "bob", "cleo")
MINE = """
import numpy as np

def data(folder):
    x, y = np.ones((8, 3)), np.arange(8) % 2
    return x, y, x, y, np.array(["ann", "bob"] * 4), np.array(["ann", "bob"] * 4)
"""
SPEC = ("--spec", "rns-servers", "--set", "protocol.place.servers=2", "--set", "protocol.encode.clients=4")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(monkeypatch, capsys)


@pytest.fixture
def keyed(shell: Shell) -> Shell:
    """Everybody has keys."""
    for name in (*HOSTS, *CLIENTS):
        shell.json("keygen", name, *(("--address", "localhost:7443") if name in HOSTS else ()))
    return shell


@pytest.fixture
def enrolled(keyed: Shell) -> Shell:
    """Somebody has made a roster."""
    keyed.json("enrol", *cards(), *SPEC)
    return keyed


def cards() -> list[Path]:
    return sorted(Path().glob("*/*.card"))


def key(name: str) -> Path:
    return Path(name) / f"{name}.key"


def accept(shell: Shell, name: str, roster: str = "federation.roster") -> None:
    words = Roster.read(Path(roster)).words
    found = shell.json("accept", roster, "--key", key(name), "--yes", *words)
    assert found["accepted"] is True


def private() -> list[str]:
    """Every private part that lies in any key or secret file here."""
    found = []
    for path in [*Path().glob("*/*.key"), *Path().glob("*/*.runs/*/*.group")]:
        table = tomllib.loads(path.read_text())
        found += [value for field, value in table.items() if field in ("identity", "box", "secret")]
        found += table.get("tls_key", "").splitlines()[1:-1]
    return found


def test_the_whole_ceremony(shell: Shell) -> None:
    told = []

    def say(*words: str | Path) -> str:
        code, out, err = shell(*words)
        assert (code, err) == (0, ""), err
        told.append(out)
        return out

    for name in HOSTS:
        assert f"made the keys of {name}, a " in say("keygen", name, "--address", "localhost:7443")
    for name in CLIENTS:
        assert f"secret: {name}/{name}.key" in say("keygen", name)
    made = say("enrol", *cards(), *SPEC)
    words = Roster.read(Path("federation.roster")).words
    assert f"words: {' '.join(words)}" in made
    for name in (*HOSTS, *CLIENTS):
        shown = say("accept", "federation.roster", "--key", key(name), "--yes", *words)
        assert f"{name} (you)" in shown
        assert f"accepted: {name} takes part under this roster" in shown
        assert ("start the host" in shown) == (name in HOSTS)
    accepted = sorted(Path().glob("*.accepted"))
    assert "not yet by: nobody" in say("accept", "federation.roster", *accepted)
    assert "drew the secret of 3 clients" in say("group", "--key", key("ann"), "--roster", "federation.roster")
    for name in ("bob", "cleo"):
        assert "opened the clients' secret that ann drew" in say("group", "--key", key(name), "--open", "group.sealed")
    roster = Roster.read(Path("federation.roster"))
    assert len({Home.open(key(name)).group(roster) for name in CLIENTS}) == 1
    everything = "".join(told) + "".join(path.read_text() for path in Path().glob("*.*") if path.is_file())
    assert len(private()) == 6 * 5 + 3
    assert not any(secret in everything for secret in private())


def test_what_keygen_made_is_for_its_owner_only(shell: Shell) -> None:
    found = shell.json("keygen", "ann", "--out", "far/away", "--days", "30")
    assert (found["key"], found["card"]) == ("far/away/ann.key", "far/away/ann.card")
    assert [stat.S_IMODE(Path(name).stat().st_mode) for name in ("far/away", "far/away/ann.key")] == [0o700, 0o600]
    before = Path("far/away/ann.key").read_text()
    assert "is not written over" in shell.refused("keygen", "ann", "--out", "far/away")
    assert Path("far/away/ann.key").read_text() == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("a" * 33,), "1 to 32 letters"),
        (("../ann",), "choose such a name"),
        (("sum1",), "write host:port"),
        (("sum1", "--address", "nowhere"), "write host:port"),
        (("ann", "--address", "h:1"), "clients only dial out"),
        (("ann", "--role", "relay"), "a relay is called relay"),
        (("ann", "--role", "boss"), "no party has that role"),
        (("ann", "--days", "0"), "1 to 3650 days"),
    ],
)
def test_keys_that_cannot_be_leave_nothing_behind(words: tuple[str, ...], says: str, shell: Shell) -> None:
    assert says in shell.refused("keygen", *words)
    assert list(Path().iterdir()) == []


def test_a_folder_that_others_may_enter_gets_no_keys(shell: Shell) -> None:
    Path("open").mkdir(mode=0o755)
    assert "chmod 700 open" in shell.refused("keygen", "ann", "--out", "open")


def test_a_roster_says_who_and_when(keyed: Shell) -> None:
    times = ("--phase", "20", "--round-limit", "90", "--hold", "5", "--quorum", "3", "--out", "mine.roster")
    found = keyed.json("enrol", *cards(), *SPEC, *times)
    made = Roster.read(Path("mine.roster"))
    assert (found["digest"], found["words"]) == (made.digest.hex(), list(made.words))
    assert found["hosts"] == dict.fromkeys(HOSTS, "localhost:7443")
    assert (made.timetable.phase, made.timetable.round, made.timetable.hold, made.quorum) == (20, 90, 5, 3)
    assert made.spec.protocol.place.plain()["servers"] == 2
    assert (made.layout.size, made.inputs) == (4810, (64,))
    assert "is not written over" in keyed.refused("enrol", *cards(), *SPEC, "--out", "mine.roster")


def test_room_for_the_clients_that_have_cards(keyed: Shell) -> None:
    """Where a description leaves to its data how many clients there are, the cards say it."""
    Path("own.toml").write_text(
        'protocol = "rns-servers"\n[task]\nsplit = "natural"\ndata = { use = "own", make = "mine:data" }\n'
    )
    keyed("keygen", "sum3", "--address", "localhost:7443")
    said = keyed.refused("enrol", *cards(), "--spec", "own.toml")
    assert "there is no mine.py" in said
    assert "it is made where the data or some like them are at hand" in said
    Path("mine.py").write_text(MINE)
    keyed.json("enrol", *cards(), "--spec", "own.toml")
    assert Roster.read(Path("federation.roster")).inputs == (3,)
    assert Roster.read(Path("federation.roster")).spec.protocol.encode.plain()["clients"] == 3


def test_rosters_that_cannot_be(keyed: Shell) -> None:
    every = cards()
    assert "--spec is missing" in keyed.refused("enrol", *every)
    assert "--without = ['ann']: belongs to --after" in keyed.refused("enrol", *every, *SPEC, "--without", "ann")
    assert "--from-round = 3: belongs to --after" in keyed.refused("enrol", *every, *SPEC, "--from-round", "3")
    assert "2 cards have the same name" in keyed.refused("enrol", *every, every[0], *SPEC)
    no_host = [card for card in every if card.stem != "sum2"]
    assert "'sum2' takes part in this protocol and has no card" in keyed.refused("enrol", *no_host, *SPEC)
    assert "quorum = 9" in keyed.refused("enrol", *every, *SPEC, "--quorum", "9")
    assert "nothing.card: cannot be read" in keyed.refused("enrol", "nothing.card", *SPEC)
    Path("bob/bob.card").write_text(Path("bob/bob.card").read_text().replace("created = ", "created  = "))
    keyed.json("enrol", *every, *SPEC)
    Path("bob/bob.card").write_text(Path("ann/ann.card").read_text().replace('name = "ann"', 'name = "bob"'))
    assert "card of bob: certificate" in keyed.refused("enrol", *every, *SPEC, "--out", "other.roster")
    assert not Path("other.roster").exists()


def test_an_ended_certificate_is_not_enrolled_nor_accepted(enrolled: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=400)
    monkeypatch.setattr("croupier.cli.enrol.now", lambda: later)
    monkeypatch.setattr("croupier.cli.accept.now", lambda: later)
    says = "card of ann: its certificate ended on"
    assert says in enrolled.refused("enrol", *cards(), *SPEC, "--out", "other.roster")
    assert says in enrolled.refused("accept", "federation.roster", "--key", key("ann"))


def test_other_words_are_refused_and_nothing_is_pinned(enrolled: Shell) -> None:
    words = list(Roster.read(Path("federation.roster")).words)
    words[3] = "babal" if words[3] != "babal" else "babas"
    code, _, said = enrolled("accept", "federation.roster", "--key", key("ann"), "--yes", *words)
    assert code == 2
    assert "they are not those of this roster" in said
    assert not Path("ann/ann.runs").exists()
    assert not Path("ann.accepted").exists()


def test_without_words_nothing_is_accepted(enrolled: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("croupier.cli.accept._at_a_terminal", lambda: False)
    code, out, said = enrolled("accept", "federation.roster", "--key", key("ann"))
    assert (code, said) == (1, "")
    assert "nothing was accepted yet; once the words agree: croupier accept federation.roster --key" in out
    code, out, _ = enrolled("accept", "federation.roster", "--key", key("ann"), "--json")
    assert (code, json.loads(out)["accepted"]) == (1, False)
    assert not Path("ann/ann.runs").exists()


def test_words_are_asked_for_at_a_terminal(enrolled: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    words = Roster.read(Path("federation.roster")).words
    monkeypatch.setattr("croupier.cli.accept._at_a_terminal", lambda: True)
    monkeypatch.setattr(typer, "prompt", lambda _: "one two three four five six")
    assert enrolled("accept", "federation.roster", "--key", key("ann"))[0] == 2
    monkeypatch.setattr(typer, "prompt", lambda _: " ".join(words).upper())
    assert "accepted: ann takes part" in enrolled("accept", "federation.roster", "--key", key("ann"))[1]

    def abort(_: str) -> str:
        raise typer.Abort

    monkeypatch.setattr(typer, "prompt", abort)
    code, out, said = enrolled("accept", "federation.roster", "--key", key("bob"))
    assert (code, said) == (1, "")
    assert "nothing was accepted yet" in out


def test_who_has_accepted_is_shown(enrolled: Shell) -> None:
    accept(enrolled, "ann")
    accept(enrolled, "sum1")
    found = enrolled.json("accept", "federation.roster", "ann.accepted", "sum1.accepted")
    assert (found["accepted_by"], found["not_yet_by"]) == (["ann", "sum1"], ["bob", "cleo", "server", "sum2"])
    assert enrolled.json("accept", "federation.roster")["accepted_by"] == []
    Path("bob.accepted").write_text(Path("ann.accepted").read_text().replace('"ann"', '"bob"'))
    assert "acceptance of bob: the signature" in enrolled.refused("accept", "federation.roster", "bob.accepted")
    assert "look at others' countersignatures without --key" in enrolled.refused(
        "accept", "federation.roster", "ann.accepted", "--key", key("ann")
    )  # fmt: skip
    assert "--out = x: belongs to --key" in enrolled.refused("accept", "federation.roster", "--out", "x")


def test_a_changed_roster_is_not_even_shown(enrolled: Shell) -> None:
    path = Path("federation.roster")
    path.write_text(path.read_text().replace("localhost:7443", "localhost:7444", 1))
    said = enrolled.refused("accept", path, "--key", key("ann"))
    assert "the signature is not that of its identity" in said
    assert said.startswith("federation.roster: it is damaged or was changed since it was made")
    assert said.endswith("ask whoever made the roster for the file once more")


def test_brackets_of_an_address_are_shown(keyed: Shell) -> None:
    keyed("keygen", "sum3", "--address", "[::1]:7443")
    keyed("enrol", *cards(), "--spec", "rns-servers")
    code, out, _ = keyed("accept", "federation.roster", "--key", key("ann"), "--yes", *["x"] * 6)
    assert code == 2
    assert "[::1]:7443" in out


def test_without_sum_servers_no_secret_is_asked_for(keyed: Shell) -> None:
    few = [card for card in cards() if not card.stem.startswith("sum")]
    words = keyed.json("enrol", *few, "--spec", "digits")["words"]
    code, out, _ = keyed("accept", "federation.roster", "--key", key("ann"), "--yes", *words)
    assert code == 0
    assert out.endswith("next: start the client: croupier join --key ann/ann.key\n")


def test_a_secret_takes_an_accepted_roster(enrolled: Shell) -> None:
    draw = ("group", "--key", key("ann"), "--roster", "federation.roster")
    assert "ann has not accepted it" in enrolled.refused(*draw)
    for name in (*CLIENTS, "sum1"):
        accept(enrolled, name)
    assert "sum1 is a host" in enrolled.refused("group", "--key", key("sum1"), "--roster", "federation.roster")
    Path("group.sealed").write_text("worth keeping")
    assert "is not written over" in enrolled.refused(*draw)
    Path("group.sealed").unlink()
    found = enrolled.json(*draw)
    assert found["file"] == "group.sealed"
    assert "ann has a group secret under version 1 already" in enrolled.refused(*draw, "--out", "again.sealed")
    assert not Path("again.sealed").exists()
    assert enrolled.json("group", "--key", key("ann"), "--open", "group.sealed")["drawn_by"] == "ann"
    enrolled.json("group", "--key", key("bob"), "--open", "group.sealed")
    other = ("group", "--key", key("cleo"), "--roster", "federation.roster", "--out", "other.sealed")
    enrolled.json(*other)
    assert "one client draws the secret" in enrolled.refused("group", "--key", key("bob"), "--open", "other.sealed")


def test_one_of_drawing_and_opening(enrolled: Shell) -> None:
    for words in ((), ("--roster", "federation.roster", "--open", "group.sealed")):
        assert "give --roster to draw the secret, or --open" in enrolled.refused("group", "--key", key("ann"), *words)
    assert "--out = x: opening writes into your own folder only" in enrolled.refused(
        "group", "--key", key("ann"), "--open", "group.sealed", "--out", "x"
    )  # fmt: skip


def test_parties_join_leave_and_renew_their_keys(enrolled: Shell) -> None:
    for name in (*HOSTS, *CLIENTS):
        accept(enrolled, name)
    enrolled.json("keygen", "dora")
    old = key("ann").read_text()
    assert enrolled.json("rotate", "--key", key("ann"))["key"] == "ann/ann.2.key"
    found = enrolled.json("rotate", "--key", key("sum1"), "--address", "localhost:9000", "--days", "10")
    assert (found["address"], key("ann").read_text()) == ("localhost:9000", old)
    fresh = ("dora/dora.card", "ann/ann.2.card", "sum1/sum1.2.card")
    after = ("--after", "federation.roster")
    assert "--from-round is missing" in enrolled.refused("enrol", *fresh, *after)
    assert "the run has 10 rounds, and the version would never hold" in enrolled.refused(
        "enrol", *fresh, *after, "--from-round", "11"
    )  # fmt: skip
    assert "the description of the old roster stays" in enrolled.refused("enrol", *fresh, *after, "--spec", "rns")
    assert "'eve' has no card" in enrolled.refused("enrol", *after, "--without", "eve", "--from-round", "5")
    code, out, said = enrolled("enrol", *fresh, *after, "--without", "cleo", "--from-round", "5", "--phase", "7")
    assert (code, said) == (0, "")
    assert all(line in out for line in ("made federation.2.roster", "joined: dora", "left: cleo", "changed: ann, sum1"))
    first, second = (Roster.read(Path(name)) for name in ("federation.roster", "federation.2.roster"))
    assert (second.previous, second.clients, second.timetable.phase) == (first.digest, ("ann", "bob", "dora"), 7)
    assert second.timetable.round == first.timetable.round
    assert second.address("sum1") == "localhost:9000"
    assert "name the newer file with --key" in enrolled.refused("accept", "federation.2.roster", "--key", key("ann"))
    found = enrolled.json("accept", "federation.2.roster", "--key", "ann/ann.2.key", "--yes", *second.words)
    assert found["version"] == 2
    accept(enrolled, "dora", "federation.2.roster")
    assert "'cleo' has no card in version 2" in enrolled.refused("accept", "federation.2.roster", "--key", key("cleo"))
    drawn = enrolled.json("group", "--key", "ann/ann.2.key", "--roster", "federation.2.roster")
    assert drawn["file"] == "group.2.sealed"
    enrolled.json("group", "--key", key("dora"), "--open", "group.2.sealed")


@pytest.mark.parametrize("command", ["rotate", "group"])
def test_keys_that_are_not_there_are_named(command: str, shell: Shell) -> None:
    assert "name a .key file of croupier keygen" in shell.refused(command, "--key", "ann/ann.key")


def test_json_is_one_object(enrolled: Shell) -> None:
    code, out, _ = enrolled("accept", "federation.roster", "--json")
    assert code == 0
    assert json.loads(out)["version"] == 1


def test_a_certificate_is_good_for_as_long_as_help_says() -> None:
    assert ceremony.DAYS == identity.DAYS
