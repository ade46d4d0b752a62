"""Where a new user of the ceremony slips: each slip is said in words, with a remedy that can be pasted."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.shell import Shell
from tests.unit.cli.test_cli_ceremony import CLIENTS, HOSTS, SPEC, accept, cards, key

from croupier.service.acceptance import Acceptance
from croupier.service.roster import Roster


@pytest.fixture
def enrolled(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """Everybody has keys, and somebody has made a roster."""
    monkeypatch.chdir(tmp_path)
    shell = Shell(monkeypatch, capsys)
    for name in (*HOSTS, *CLIENTS):
        shell.json("keygen", name, *(("--address", "localhost:7443") if name in HOSTS else ()))
    shell.json("enrol", *cards(), *SPEC)
    return shell


@pytest.mark.parametrize("quoted", [True, False])
def test_the_words_may_be_quoted(quoted: bool, enrolled: Shell) -> None:
    words = Roster.read(Path("federation.roster")).words
    given = [" ".join(words)] if quoted else list(words)
    code, out, _ = enrolled("accept", "--key", key("ann"), "--yes", *given, "federation.roster")
    assert code == 0
    assert "accepted: ann takes part" in out


def test_what_is_accepted_is_shown_first(enrolled: Shell) -> None:
    words = Roster.read(Path("federation.roster")).words
    _, out, _ = enrolled("accept", "federation.roster", "--key", key("ann"), "--yes", *words)
    for line in (
        "rounds: 10, of 3 invited clients each",
        "data: digits, split dirichlet; model mlp, 4810 numbers an update",
        "place sum-servers; croupier explain says who learns what",
        "timetable: 300 s a step, 3600 s a round, 15 s held",
        "warning: a round counts with 2 clients: of what two release together each knows the other's part",
    ):
        assert line in out
    assert out.index("rounds: ") < out.index("words: ")


def test_clients_without_a_part_of_the_data_are_named(enrolled: Shell) -> None:
    code, out, _ = enrolled("enrol", *cards(), *SPEC, "--out", "other.roster")
    assert code == 0
    assert "warning: task.split gives 10 parts, c0 to c9, and none to ann, bob, cleo" in out
    found = enrolled.json("enrol", *cards(), *SPEC, "--out", "third.roster")
    assert [note.split(":")[0] for note in found["notes"]] == ["warning", "warning"]


def test_an_acceptance_of_another_roster_is_not_written_over(enrolled: Shell) -> None:
    accept(enrolled, "ann")
    before = Path("ann.accepted").read_text()
    words = enrolled.json("enrol", *cards(), *SPEC, "--out", "second.roster")["words"]
    again = ("accept", "second.roster", "--key", key("ann"), "--yes", *words)
    assert "ann.accepted: is there already and is of another roster" in enrolled.refused(*again)
    assert Path("ann.accepted").read_text() == before
    assert len(list(Path("ann/ann.runs").iterdir())) == 1, "nothing was pinned"
    code, out, _ = enrolled(*again, "--out", "second.accepted")
    assert code == 0
    assert "note: ann has accepted rosters of 1 other run before; to start, name this one by --roster" in out
    found = enrolled.json("accept", "second.roster", "ann.accepted", "second.accepted")
    assert (found["accepted_by"], found["of_another_roster"]) == (["ann"], ["ann.accepted"])


def test_a_later_version_is_accepted_into_a_file_of_its_own(enrolled: Shell) -> None:
    accept(enrolled, "ann")
    enrolled.json("keygen", "dora")
    enrolled.json("enrol", "dora/dora.card", "--after", "federation.roster", "--from-round", "5")
    accept(enrolled, "ann", "federation.2.roster")
    first, second = (Acceptance.read(Path(name)) for name in ("ann.accepted", "ann.2.accepted"))
    assert first.roster != second.roster
    accept(enrolled, "ann", "federation.2.roster")


def test_two_draws_show_two_fingerprints_and_the_way_back(enrolled: Shell) -> None:
    for name in CLIENTS:
        accept(enrolled, name)
    roster = ("--roster", "federation.roster")
    ann = enrolled.json("group", "--key", key("ann"), *roster)["fingerprint"]
    bob = enrolled.json("group", "--key", key("bob"), *roster, "--out", "bob.sealed")["fingerprint"]
    assert enrolled.json("group", "--key", key("cleo"), "--open", "group.sealed")["fingerprint"] == ann
    assert ann != bob
    words = Roster.read(Path("federation.roster")).words
    _, out, _ = enrolled("accept", "federation.roster", "--key", key("bob"), "--yes", *words)
    assert f"clients' secret: {bob} (the same at every client)" in out
    assert f"already ({bob})" in enrolled.refused("group", "--key", key("bob"), *roster, "--out", "x.sealed")
    said = enrolled.refused("group", "--key", key("bob"), "--open", "group.sealed")
    path = said.rpartition("delete ")[2].partition(" and open")[0]
    Path(path).unlink()
    assert enrolled.json("group", "--key", key("bob"), "--open", "group.sealed")["fingerprint"] == ann
