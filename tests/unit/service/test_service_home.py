"""A party's home: what it has accepted, and nothing else."""

from __future__ import annotations

import re
import stat
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.enrolled import CLIENTS, HOSTS, NOW, card_of, described, home_of, keys_of, roster

from croupier.core.coins import Coins
from croupier.errors import RosterError, StoreError
from croupier.service.acceptance import Acceptance, missing
from croupier.service.home import Home, next_stem, save_keys
from croupier.service.identity import make_keys, renew_keys
from croupier.service.roster import Roster
from croupier.service.versions import make_roster, next_roster

DAY = NOW.date()
SECOND = next_roster(roster(), 5, without=["cleo"])


def test_a_pinned_roster_is_there_again(tmp_path: Path) -> None:
    home = home_of("ann", tmp_path)
    with pytest.raises(RosterError, match=r"ann has not accepted it; .*croupier accept FILE\.roster --key .*ann\.key"):
        home.pinned_as(roster())
    made = home.pin(roster(), DAY)
    again = Home.open(home.folder / "ann.key")
    assert again.pinned(roster().run) == (roster(),)
    assert again.pinned_as(roster()) == again.pinned_by(roster().digest) == roster()
    assert again.pinned(bytes(16)) == ()
    made.check(roster())
    assert home.pin(roster(), DAY.replace(year=2030)) == made
    assert stat.S_IMODE((home.folder / "ann.runs").stat().st_mode) == 0o700


def test_two_parties_of_one_folder_do_not_accept_for_each_other(tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        save_keys(tmp_path / "both", keys_of(name), card_of(name), name)
    ann, bob = (Home.open(tmp_path / "both" / f"{name}.key") for name in ("ann", "bob"))
    ann.pin(roster(), DAY)
    assert bob.pinned(roster().run) == ()
    (tmp_path / "both" / "ann.runs").rename(tmp_path / "both" / "bob.runs")
    with pytest.raises(RosterError, match="somebody else accepted it"):
        bob.pinned(roster().run)


def test_all_accepted_versions_are_pinned(tmp_path: Path) -> None:
    home = home_of("ann", tmp_path)
    home.pin(roster(), DAY)
    home.pin(SECOND, DAY)
    assert home.pinned(roster().run) == (roster(), SECOND)
    # Whoever joins later accepts the version that it is in, and has none for the rounds before.
    late = home_of("bob", tmp_path)
    late.pin(SECOND, DAY)
    assert late.pinned(roster().run) == (SECOND,)


def test_a_card_that_was_changed_is_not_accepted_by_its_owner(tmp_path: Path) -> None:
    home = home_of("ann", tmp_path)
    for other in (make_keys("ann", Coins.from_seed(50), NOW), renew_keys(keys_of("ann"), Coins.from_seed(50), NOW)):
        cards = [card_of(name) for name in (*HOSTS, "bob")] + [other.card("", DAY)]
        with pytest.raises(RosterError, match=r"other keys under your name than your key file.*tell the others"):
            home.pin(make_roster(cards, described(), Coins.from_seed(2)), DAY)
    assert not (home.folder / "ann.runs").exists()


def test_who_is_not_in_it_does_not_accept_it(tmp_path: Path) -> None:
    with pytest.raises(RosterError, match="'cleo' has no card in version 2"):
        home_of("cleo", tmp_path).pin(SECOND, DAY)


def test_a_version_must_follow_the_one_accepted(tmp_path: Path) -> None:
    home = home_of("ann", tmp_path)
    home.pin(roster(), DAY)
    third = next_roster(SECOND, 9)
    with pytest.raises(RosterError, match="accept the versions between first"):
        home.pin(third, DAY)
    home.pin(SECOND, DAY)
    fork = next_roster(roster(), 6, without=["bob"])
    with pytest.raises(RosterError, match=r"another roster of that version was accepted here.*tell the others"):
        home.pin(fork, DAY)
    home.pin(third, DAY)
    assert home.pinned(roster().run) == (roster(), SECOND, third)


def test_a_name_comes_back_only_as_who_it_was(tmp_path: Path) -> None:
    home = home_of("ann", tmp_path)
    home.pin(roster(), DAY)
    home.pin(SECOND, DAY)
    stranger = make_keys("cleo", Coins.from_seed(51), NOW).card("", DAY)
    with pytest.raises(RosterError, match="card of cleo: its identity is not that of version 1"):
        home.pin(next_roster(SECOND, 9, [stranger]), DAY)
    home.pin(next_roster(SECOND, 9, [card_of("cleo")]), DAY)


def test_renewed_keys_accept_the_version_that_has_them(tmp_path: Path) -> None:
    home = home_of("ann", tmp_path)
    home.pin(roster(), DAY)
    keys = renew_keys(home.keys, Coins.from_seed(52), NOW)
    secret, _ = save_keys(home.folder, keys, keys.card("", DAY), next_stem(home.folder, "ann"))
    second = next_roster(roster(), 5, [keys.card("", DAY)])
    with pytest.raises(RosterError, match="if you renewed them, name the newer file with --key"):
        home.pin(second, DAY)
    newer = Home.open(secret)
    newer.pin(second, DAY)
    assert newer.pinned(roster().run) == home.pinned(roster().run) == (roster(), second)


@pytest.mark.parametrize("kind", ["roster", "accepted"])
@pytest.mark.parametrize("change", ["another", "other text", "gone"])
def test_what_is_changed_at_home_is_pinned_no_more(kind: str, change: str, tmp_path: Path) -> None:
    home = home_of("ann", tmp_path)
    home.pin(roster(), DAY)
    path = home.folder / "ann.runs" / roster().run.hex() / f"1.{kind}"
    other = make_roster(roster().cards, described(), Coins.from_seed(3))
    texts = {"roster": other.text(), "accepted": Acceptance.make(keys_of("ann"), other, DAY).text()}
    if change == "gone":
        path.unlink()
    else:
        path.write_text(texts[kind] if change == "another" else path.read_text().replace("2026", "2027"))
    with pytest.raises((RosterError, StoreError)):
        home.pinned_as(roster())


def test_a_roster_whose_acceptance_was_not_written_is_not_pinned(tmp_path: Path) -> None:
    home = home_of("ann", tmp_path)
    home.pin(roster(), DAY)
    (home.folder / "ann.runs" / roster().run.hex() / "1.accepted").unlink()
    assert home.pinned(roster().run) == ()
    home.pin(roster(), DAY)
    assert home.pinned(roster().run) == (roster(),)


def test_who_has_accepted() -> None:
    done = [Acceptance.make(keys_of(name), roster(), DAY) for name in ("ann", "sum1")]
    assert missing(roster(), done) == ("bob", "cleo", "server", "sum2", "sum3")
    assert missing(roster(), [Acceptance.make(keys_of(name), roster(), DAY) for name in (*CLIENTS, *HOSTS)]) == ()


@pytest.mark.parametrize("field", [field.name for field in fields(Acceptance)])
def test_a_changed_acceptance_is_refused(field: str, tmp_path: Path) -> None:
    good = Acceptance.make(keys_of("ann"), roster(), DAY)
    path = tmp_path / "ann.accepted"
    path.write_text(good.text())
    assert Acceptance.read(path) == good
    change = {"name": "bob", "roster": SECOND.digest, "day": "2026-03-02", "signature": bytes(64)}[field]
    with pytest.raises(RosterError):
        missing(roster(), [replace(good, **{field: change})])  # type: ignore[arg-type]
    path.write_text(re.sub(rf"^{field} = .*$", "", good.text(), flags=re.MULTILINE))
    with pytest.raises(RosterError, match=f"{field} is missing"):
        Acceptance.read(path)


def test_an_acceptance_by_a_stranger_or_of_another_roster_is_refused() -> None:
    stranger = make_keys("ann", Coins.from_seed(53), NOW)
    with pytest.raises(RosterError, match="the signature is not that of its identity"):
        missing(roster(), [Acceptance.make(stranger, roster(), DAY)])
    with pytest.raises(RosterError, match="'dora' has no card"):
        missing(roster(), [Acceptance.make(keys_of("dora"), roster(), DAY)])
    with pytest.raises(RosterError, match="see that you both hold the same file"):
        missing(roster(), [Acceptance.make(keys_of("ann"), SECOND, DAY)])


def test_a_secret_is_kept_for_its_roster_only(tmp_path: Path) -> None:
    home, secret = home_of("ann", tmp_path), bytes(range(32))
    with pytest.raises(RosterError, match="has not accepted it"):
        home.keep_group(roster(), secret)
    home.pin(roster(), DAY)
    home.pin(SECOND, DAY)
    with pytest.raises(StoreError, match="ann has no group secret under version 1; open the sealed file"):
        home.group(roster())
    path = home.keep_group(roster(), secret)
    assert home.keep_group(roster(), secret) == path
    assert home.group(roster()) == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(StoreError, match="is not written over; one client draws the secret"):
        home.keep_group(roster(), bytes(32))
    assert home.group(roster()) == secret
    with pytest.raises(StoreError, match="no group secret under version 2"):
        home.group(SECOND)
    path.with_name("2.group").write_text(path.read_text())
    path.with_name("2.group").chmod(0o600)
    with pytest.raises(RosterError, match="belongs to another roster") as error:
        home.group(SECOND)
    assert secret.hex() not in f"{error.value} {home!r}"
    path.chmod(0o644)
    with pytest.raises(StoreError, match="others may read"):
        home.group(roster())


def test_a_roster_at_home_is_the_one_of_its_name(tmp_path: Path) -> None:
    home = home_of("ann", tmp_path)
    home.pin(roster(), DAY)
    folder = home.folder / "ann.runs" / roster().run.hex()
    for kind in ("roster", "accepted"):
        (folder / f"1.{kind}").rename(folder / f"2.{kind}")
    with pytest.raises(RosterError, match="is another roster; take the folder from a backup"):
        home.pinned(roster().run)
    assert isinstance(Roster.read(folder / "2.roster"), Roster)
