"""A party's home: the folder of its private keys, where it keeps the rosters that it has accepted and their secrets.

NAME.key, NAME.card                       its keys; NAME.2.key and so on after it renewed them
NAME.runs/RUN/VERSION.roster, .accepted   a roster, and its own countersignature: together, a pinned roster
NAME.runs/RUN/VERSION.group               the clients' group secret under that roster
NAME.runs/RUN/store, views, out           what it must not lose while it takes part; kept views; the server's results

`croupier keygen`, `rotate`, `group` and `accept` write to it; `croupier serve`, `join` and `flower.station` read it. A
host or a client starts only with a roster that is pinned here (`pinned_version`). Only the owner may enter the folder.
"""

from __future__ import annotations

import datetime as dt
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from croupier.core.files import write_whole
from croupier.errors import RosterError, StoreError
from croupier.service.acceptance import Acceptance
from croupier.service.card import Card
from croupier.service.fields import Fields, read_file, read_table, write_new, write_table
from croupier.service.identity import Keyring, check_private
from croupier.service.roster import RUN, Roster
from croupier.service.versions import verify_chain, verify_identities

SECRET = 32
_SPACE = "free space, or see who may write there"
_HEAD = "SECRET: what all clients share under one roster. Hosts must never see it."


class Home:
    """One party's folder, with its keys."""

    def __init__(self, folder: Path, keys: Keyring, file: Path | None = None) -> None:
        self.folder, self.keys = folder, keys
        # The key file as its owner named it: remedies repeat it, so that they can be pasted.
        self.file = file or folder / f"{keys.name}.key"

    def __repr__(self) -> str:
        return f"Home({str(self.folder)!r}, {self.keys!r})"

    @classmethod
    def open(cls, key: Path) -> Home:
        """The home in which a key file lies. Raises: StoreError, RosterError."""
        check_folder(key.parent)
        return cls(key.parent, Keyring.read(key), key)

    def keyrings(self) -> Iterator[Keyring]:
        """The keys that were named, then this party's others beside them: NAME.key, NAME.2.key and so on."""
        yield self.keys
        for path in sorted(self.folder.glob(f"{self.keys.name}*.key")):
            if re.fullmatch(rf"{re.escape(self.keys.name)}(\.[0-9]+)?", path.stem):
                yield Keyring.read(path)

    def runs(self) -> tuple[bytes, ...]:
        """The runs of which a roster was accepted here."""
        # A run's folder is called by its 16 bytes in hexadecimal digits.
        found = sorted((self.folder / f"{self.keys.name}.runs").glob("[0-9a-f]" * (2 * RUN)))
        return tuple(run for run in (bytes.fromhex(folder.name) for folder in found) if self.versions(run))

    def run_folder(self, run: bytes) -> Path:
        """Where everything of a run is kept."""
        return self._folder(run)

    def versions(self, run: bytes) -> tuple[int, ...]:
        """The numbers of the versions that were accepted of a run's roster, in order."""
        folder = self._folder(run)
        stems = [path.stem for path in folder.glob("*.accepted")] if folder.is_dir() else []
        return tuple(sorted(int(stem) for stem in stems if stem.isdecimal()))

    def pinned(self, run: bytes) -> tuple[Roster, ...]:
        """The accepted versions of a run's roster, in order. Raises: RosterError when one was changed since."""
        return tuple(self.pinned_version(run, number) for number in self.versions(run))

    def pinned_version(self, run: bytes, version: int) -> Roster:
        """One accepted version. Raises: RosterError when it was changed since."""
        roster = Roster.read(self._file(run, version, "roster"))
        if (roster.run, roster.version) != (run, version):
            raise RosterError(f"{self._file(run, version, 'roster')}: is another roster; take the folder from a backup")
        accepted = self._acceptance(roster)
        accepted.check(roster)
        if (accepted.name, roster.card(accepted.name).identity) != (self.keys.name, self.keys.public):
            raise RosterError(f"{self._file(run, version, 'accepted')}: somebody else accepted it; accept it anew")
        return roster

    def _acceptance(self, roster: Roster) -> Acceptance:
        return Acceptance.read(self._file(roster.run, roster.version, "accepted"))

    def pinned_as(self, roster: Roster) -> Roster:
        """The same roster, once it is known to be pinned here. Raises: RosterError when it is not."""
        return self.pinned_by(roster.digest)

    def pinned_by(self, digest: bytes) -> Roster:
        """The pinned roster with a digest. Raises: RosterError when there is none."""
        for run in self.runs():
            for roster in self.pinned(run):
                if roster.digest == digest:
                    return roster
        raise RosterError(
            f"roster with digest {digest.hex():.16}...: {self.keys.name} has not accepted it; compare its words with "
            f"the others: croupier accept FILE.roster --key {self.file}"
        )

    def check_next(self, roster: Roster) -> None:
        """See that a roster can be pinned here: own card unchanged, and it follows the last one accepted.

        Raises: RosterError.
        """
        mine = roster.card(self.keys.name)
        if not self.keys.owns(mine):
            raise RosterError(
                f"card of {mine.name}: the roster has other keys under your name than your key file; if you renewed "
                f"them, name the newer file with --key, otherwise {_warn(roster)}"
            )
        before = self.pinned(roster.run)
        if not before or roster in before:
            return
        if roster.version <= before[-1].version:
            raise RosterError(
                f"version = {roster.version}: another roster of that version was accepted here, or a later one; "
                f"{_warn(roster)}"
            )
        verify_chain(before[-1], roster)
        # A name that was given up may come back, but not as somebody else.
        for old in before:
            verify_identities(old, roster)

    def pin(self, roster: Roster, day: dt.date) -> Acceptance:
        """Accept a roster: keep it, and countersign it. Doing it again changes nothing. Raises: RosterError."""
        self.check_next(roster)
        if roster in self.pinned(roster.run):
            return self._acceptance(roster)
        made = Acceptance.make(self.keys, roster, day)
        make_private(self._folder(roster.run))
        # The countersignature last: a roster without one is not pinned.
        write_whole(self._file(roster.run, roster.version, "roster"), roster.text().encode(), _SPACE)
        write_whole(self._file(roster.run, roster.version, "accepted"), made.text().encode(), _SPACE)
        return made

    def group(self, roster: Roster) -> bytes:
        """The clients' secret under a roster. Raises: StoreError when there is none yet."""
        path = self._file(roster.run, roster.version, "group")
        remedy = (
            "open the sealed file that one client made for this roster: croupier group --open "
            f"{sealed_name(roster)} --key {self.file}"
        )
        if not self.has_group(roster):
            raise StoreError(f"{self.keys.name} has no group secret under version {roster.version}; {remedy}")
        check_private(path)
        fields = Fields(str(path), read_table(read_file(path, remedy), str(path), remedy), remedy, secret=True)
        digest, secret = fields.raw("roster"), fields.raw("secret")
        fields.end()
        if digest != roster.digest or len(secret) != SECRET:
            raise RosterError(f"{path}: belongs to another roster; {remedy}")
        return secret

    def has_group(self, roster: Roster) -> bool:
        """Whether the clients' secret under a roster is here already."""
        return self._file(roster.run, roster.version, "group").exists()

    def keep_group(self, roster: Roster, secret: bytes) -> Path:
        """Keep the clients' secret under a pinned roster. Raises: StoreError when there is another one already."""
        self.pinned_as(roster)
        path = self._file(roster.run, roster.version, "group")
        if self.has_group(roster) and self.group(roster) == secret:
            return path
        text = write_table(_HEAD, {"roster": roster.digest.hex(), "secret": secret.hex()})
        remedy = (
            "one client draws the secret of a roster for all. If the other file is the one that all clients go by, "
            f"delete {path} and open that file again"
        )
        return write_new(path, text, remedy, 0o600)

    def _folder(self, run: bytes) -> Path:
        return self.folder / f"{self.keys.name}.runs" / run.hex()

    def _file(self, run: bytes, version: int, kind: str) -> Path:
        return self._folder(run) / f"{version}.{kind}"


def sealed_name(roster: Roster) -> str:
    """The name of the file in which one client hands the others the group secret."""
    return "group.sealed" if roster.version == 1 else f"group.{roster.version}.sealed"


def _warn(roster: Roster) -> str:
    return f"do not accept it, and tell the others on the telephone (digest {roster.digest.hex()[:16]}...)"


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may enter. Raises: StoreError when others may enter one that is there."""
    try:
        for one in reversed((folder, *folder.parents)):
            if not one.exists():
                one.mkdir(mode=0o700)
    except OSError as error:
        raise StoreError(f"{folder}: cannot make the folder ({error.strerror}); choose another") from None
    check_folder(folder)


def check_folder(folder: Path) -> None:
    """Raises: StoreError when a folder is not there, or others than its owner may enter it."""
    try:
        mode = folder.stat().st_mode
    except OSError as error:
        raise StoreError(f"{folder}: cannot be read ({error.strerror}); name a .key file of croupier keygen") from None
    if not stat.S_ISDIR(mode):
        raise StoreError(f"{folder}: is no folder; choose another")
    if stat.S_IMODE(mode) & 0o077:
        raise StoreError(
            f"{folder}: others may enter this folder of private keys; chmod 700 {folder}, or choose another"
        )


def save_keys(folder: Path, keys: Keyring, card: Card, stem: str) -> tuple[Path, Path]:
    """Write a key file and its card into a private folder. Raises: StoreError when one of them is there already."""
    make_private(folder)
    secret, public = folder / f"{stem}.key", folder / f"{stem}.card"
    remedy = "choose another folder or name, or renew the keys that are there: croupier rotate"
    if public.exists():
        raise StoreError(f"{public}: is there already and is not written over; {remedy}")
    write_new(secret, keys.text(), remedy, 0o600)
    return secret, write_new(public, card.text(), remedy)


def next_stem(folder: Path, name: str) -> str:
    """The name, without its ending, of the files of renewed keys: NAME.2, then NAME.3."""
    number = 2
    while (folder / f"{name}.{number}.key").exists() or (folder / f"{name}.{number}.card").exists():
        number += 1
    return f"{name}.{number}"
