"""Private keys: what they do, where they lie, and that they show up nowhere else."""

from __future__ import annotations

import copy
import datetime as dt
import logging
import pickle
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from tests.enrolled import NOW, card_of, home_of, keys_of

from croupier.core.coins import Coins
from croupier.errors import IntegrityError, RosterError, StoreError
from croupier.mpc.seal import seal
from croupier.mpc.signatures import verified
from croupier.service.home import Home, check_folder, make_private, next_stem, save_keys
from croupier.service.identity import Keyring, make_keys, renew_keys


def secrets_in(keys: Keyring) -> list[str]:
    """Every private part, as it could be printed."""
    raw = [keys.identity, keys.lock.private.private_bytes_raw()]
    lines = [line for line in keys.tls_key_pem.decode().splitlines() if not line.startswith("-")]
    return [*(one.hex() for one in raw), *(repr(one) for one in raw), *lines]


def test_keys_are_read_as_they_were_written(tmp_path: Path) -> None:
    home = home_of("sum1", tmp_path)
    keys = home.keys
    assert (keys.name, keys.identity, keys.tls_key_pem, keys.tls_cert_pem) == (
        "sum1", keys_of("sum1").identity, keys_of("sum1").tls_key_pem, keys_of("sum1").tls_cert_pem,
    )  # fmt: skip
    assert verified(card_of("sum1").identity, b"message", keys.sign(b"message"))
    assert not verified(card_of("sum1").identity, b"message", keys_of("sum2").sign(b"message"))
    box = seal(card_of("sum1").box, b"hello", b"purpose", Coins.from_seed(5))
    assert keys.open(box, b"purpose") == b"hello"
    with pytest.raises(IntegrityError):
        keys.open(box, b"another purpose")
    with pytest.raises(IntegrityError):
        keys_of("sum2").open(box, b"purpose")


def test_only_the_owner_may_read_them(tmp_path: Path) -> None:
    folder = tmp_path / "outer" / "inner"
    secret, public = save_keys(folder, keys_of("ann"), card_of("ann"), "ann")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder, secret)}
    assert modes == {folder.parent: 0o700, folder: 0o700, secret: 0o600}
    assert not any(one in public.read_text() for one in secrets_in(keys_of("ann")))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_keys_that_others_may_read_are_refused(mode: int, tmp_path: Path) -> None:
    secret = home_of("ann", tmp_path).folder / "ann.key"
    secret.chmod(mode)
    with pytest.raises(StoreError, match=r"others may read these private keys; chmod 600 .*ann\.key"):
        Keyring.read(secret)


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    home = home_of("ann", tmp_path)
    home.folder.chmod(0o755)
    with pytest.raises(StoreError, match="others may enter this folder of private keys; chmod 700"):
        Home.open(home.folder / "ann.key")
    with pytest.raises(StoreError, match="others may enter"):
        save_keys(home.folder, keys_of("bob"), card_of("bob"), "bob")
    assert not (home.folder / "bob.key").exists()


@pytest.mark.parametrize("there", ["ann.key", "ann.card"])
def test_nothing_is_written_over(there: str, tmp_path: Path) -> None:
    folder = tmp_path / "ann"
    make_private(folder)
    (folder / there).write_text("worth keeping")
    with pytest.raises(StoreError, match="is there already and is not written over"):
        save_keys(folder, keys_of("ann"), card_of("ann"), "ann")
    assert [path.name for path in folder.iterdir()] == [there]
    assert (folder / there).read_text() == "worth keeping"


def test_keys_are_not_written_through_a_link(tmp_path: Path) -> None:
    folder, aim = tmp_path / "ann", tmp_path / "aim"
    make_private(folder)
    (folder / "ann.key").symlink_to(aim)
    with pytest.raises(StoreError, match="is there already"):
        save_keys(folder, keys_of("ann"), card_of("ann"), "ann")
    assert not aim.exists()


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is no folder"):
        make_private(tmp_path / "file")
    with pytest.raises(StoreError, match="cannot make the folder"):
        make_private(tmp_path / "file" / "inner")
    with pytest.raises(StoreError, match="cannot be read"):
        check_folder(tmp_path / "nothing")
    with pytest.raises(StoreError, match=r"name a \.key file"):
        Keyring.read(tmp_path / "nothing.key")


def test_nothing_secret_is_printed_or_pickled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = home_of("ann", tmp_path)
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").warning("%s %r", home.keys, home)
    shown = f"{home!r} {home.keys} {home.keys!r} {home.keys.lock!r} {caplog.text}"
    assert "Keyring(name='ann')" in shown
    assert not any(one in shown for one in secrets_in(home.keys))
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            copied(home.keys)


@pytest.mark.parametrize("field", ["name", "identity", "box", "tls_key", "certificate"])
@pytest.mark.parametrize("change", ["gone", "a number", "cut", "other"])
def test_a_key_file_that_is_not_what_it_was_is_refused_without_telling_it(
    field: str, change: str, tmp_path: Path
) -> None:
    secret = home_of("ann", tmp_path).folder / "ann.key"
    text = secret.read_text()
    other = re.search(rf"^{field} = (.*)$", keys_of("bob").text(), re.MULTILINE)
    assert other is not None
    line = {"gone": "", "a number": f"{field} = 7", "cut": f'{field} = ""', "other": f"{field} = {other[1]}"}[change]
    secret.write_text(re.sub(rf"^{field} = .*$", lambda _: line, text, flags=re.MULTILINE))
    if change == "other" and field in ("name", "identity", "box"):
        # A whole key of somebody else's is a key: the card that it no longer owns tells.
        assert not Keyring.read(secret).owns(card_of("ann"))
        return
    with pytest.raises(RosterError) as error:
        Keyring.read(secret)
    assert not any(one in str(error.value) for one in (*secrets_in(keys_of("ann")), *secrets_in(keys_of("bob"))))


def test_a_broken_key_file_is_not_quoted(tmp_path: Path) -> None:
    secret = home_of("ann", tmp_path).folder / "ann.key"
    secret.write_text(secret.read_text().replace('identity = "', "identity = "))
    with pytest.raises(RosterError, match="not valid TOML") as error:
        Keyring.read(secret)
    assert not any(one[:16] in str(error.value) for one in secrets_in(keys_of("ann")))


def test_renewed_keys_have_the_old_identity_and_nothing_else_of_the_old() -> None:
    old = keys_of("sum1")
    new = renew_keys(old, Coins.from_seed(7), NOW, days=30)
    card = new.card("localhost:8000", NOW.date())
    assert (card.name, card.identity) == ("sum1", card_of("sum1").identity)
    assert card.box != card_of("sum1").box
    assert card.fingerprint != card_of("sum1").fingerprint
    assert card.expires - NOW == dt.timedelta(days=30)
    assert new.owns(card)
    assert not old.owns(card)


def test_fresh_keys_are_fresh() -> None:
    first, second = (make_keys("ann", Coins.from_os(), NOW) for _ in range(2))
    assert len({first.identity, second.identity}) == len({first.lock.public, second.lock.public}) == 2
    assert first.tls_key_pem != second.tls_key_pem
    assert first.identity != first.lock.private.private_bytes_raw()


@pytest.mark.parametrize("days", [0, -1, 3651])
def test_days_that_cannot_be(days: int) -> None:
    with pytest.raises(RosterError, match=f"days = {days}: a certificate is good for 1 to 3650 days"):
        make_keys("ann", Coins.from_seed(1), NOW, days)


def test_a_certificate_of_another_key_is_refused() -> None:
    with pytest.raises(RosterError, match="the certificate belongs to another key"):
        replace(keys_of("ann"), tls_cert_pem=keys_of("bob").tls_cert_pem)


def test_a_certificate_names_its_party() -> None:
    found = x509.load_pem_x509_certificate(keys_of("sum1").tls_cert_pem)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["sum1.croupier.internal"]
    assert (found.not_valid_after_utc - NOW).days == 398


def test_files_of_renewed_keys_are_numbered(tmp_path: Path) -> None:
    folder = home_of("ann", tmp_path).folder
    assert next_stem(folder, "ann") == "ann.2"
    (folder / "ann.2.card").touch()
    (folder / "ann.3.key").touch()
    assert next_stem(folder, "ann") == "ann.4"
