"""Two servers give what the rule gives in the clear, bit for bit; who cheats or is missing is dealt with by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.seated import LOOSE, Seated, random_rows, signs
from tests.tiers import examples
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Letter, Received
from croupier.errors import IntegrityError, ProtocolError, TooFew
from croupier.mpc import deal_shares, dealer
from croupier.mpc.deal_shares import Check
from croupier.place.two_servers.messages import SERVERS, levels
from croupier.release.scored import ScoredSum

CHECKS: list[Check] = ["none", "hash", "product"]
CHEATING: list[Check] = ["hash", "product"]


def rules() -> Any:
    """Rules of every kind; levels of so few clients only here, where nobody asks for a crowd."""
    return st.builds(
        lambda weights, side, gate, floor, expected, among: ScoredSum(
            weights=weights, side="one" if weights == "relu" else side, gate=gate, floor=floor, expected=expected,
            among=among,
        ),
        st.sampled_from(["equal", "levels", "relu"]), st.sampled_from(["one", "two"]), st.booleans(), st.booleans(),
        st.none() | st.floats(0.2, 0.45), st.integers(1, 3),
    )  # fmt: skip


def same_as_clear(seated: Seated) -> None:
    """Sums, their weight and the distances as a set are those of the rule in the clear."""
    got = seated.play().released
    want = seated.release.against(list(seated.rows), seated.reference, Coins.from_seed(0))
    assert got.sums is not None
    assert torch.equal(got.sums, want["sums"])
    assert torch.equal(got.luggage["total"], want["total"])
    assert sorted(got.luggage["distances"].tolist()) == sorted(want["distances"].tolist())
    assert got.present == seated.names


@given(rules(), st.sampled_from(CHECKS), st.integers(2, 9), st.integers(1, 40), st.integers(0, 1 << 20))
@examples(60)
def test_two_servers_give_what_the_rule_gives(rule: ScoredSum, check: Check, count: int, size: int, seed: int) -> None:
    rows, reference = random_rows(count, size, seed), random_rows(1, size, seed + 1)[0]
    same_as_clear(Seated(rows, reference, check, rule, seed))


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("block", [1 << 20, 512])
@pytest.mark.parametrize("size", [1023, 1301])
def test_also_with_many_coordinates_in_pieces(
    size: int, block: int, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deal_shares, "BLOCK", block)
    reference = random_rows(1, size, 5)[0]
    away = torch.from_numpy((Coins.from_seed(6).secure().below(10, 7 * size) < 3).astype(np.uint8)).reshape(7, size)
    for weights in ("equal", "relu"):
        same_as_clear(Seated(reference ^ away, reference, check, ScoredSum(weights=weights)))


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("row", ["0" * 9, "1" * 9])
def test_rows_that_are_all_the_same_or_all_apart(check: Check, row: str) -> None:
    for rows in ([row] * 4, [row, row, "1" * 9, "0" * 9]):
        same_as_clear(Seated(signs(rows), signs(["1" * 9])[0], check))


def test_a_tree_multiplies_every_row_once() -> None:
    for rows in range(1, 70):
        assert sum(levels(rows)) == rows - 1
        assert len(levels(rows)) == (rows - 1).bit_length()


ROWS, REFERENCE = signs(["110100101", "000100101", "111111100", "010101011"]), signs(["110101101"])[0]


@pytest.mark.parametrize("check", CHECKS)
def test_a_hand_is_played_once(check: Check) -> None:
    seated = Seated(ROWS, REFERENCE, check)
    hands = seated.halves()
    assert seated.play(hands=hands).released
    again = seated.play(hands=hands)
    assert all("dealt material was used before" in again.errors[name] for name in SERVERS)
    assert not [kind for name in SERVERS for kind in again.kinds(name)], "nothing was sent"


def bent(source: str, kind: str, name: str, at: int = 0) -> Any:
    """A server that flips the lowest bit of one number of what it sends."""

    def bend(who: str, letter: Letter) -> Letter:
        if (who, letter.kind) != (source, kind):
            return letter
        assert not isinstance(letter.body, bytes)
        values = letter.body[name].clone()
        values.view(-1)[at] ^= 1
        return Letter(letter.target, kind, {**letter.body, name: values})

    return bend


STEPS = [
    ("server", "w", "rows"), ("second", "q", "rows"), ("server", "late", "reference"), ("server", "late", "nonce"),
    *((who, kind, "value") for who in SERVERS for kind in ("mul0", "mul1", "blind", "zero", "hd", "z")),
    *((who, f"{step}-s-o", "value") for who in SERVERS for step in ("v1", "v2", "v3")),
    *((who, "v2-c", "digest") for who in SERVERS), *((who, "v3-o", "nonce") for who in SERVERS),
    *((who, kind, "signature") for who in SERVERS for kind in ("root", "outcome")),
]  # fmt: skip


@pytest.mark.parametrize("check", CHEATING)
@pytest.mark.parametrize(("who", "kind", "name"), STEPS)
def test_a_server_that_changes_what_it_sends_ends_the_round(who: str, kind: str, name: str, check: Check) -> None:
    ended = Seated(ROWS, REFERENCE, check).play(bent(who, kind, name))
    other = SERVERS[1 - SERVERS.index(who)]
    assert isinstance(ended.got[other], IntegrityError), ended.got[other]
    sent = ended.kinds(other)
    if kind in ("w", "q", "late", "mul0", "mul1", "blind", "zero", "v1-s-o"):
        assert "hd" not in sent, "nothing that depends on rows is opened before the shuffle is checked"
    if kind in ("hd", "v2-s-o", "v2-c"):
        assert "z" not in sent, "no sum is opened under distances that were not checked"
    assert "published" not in sent or (who, kind) == ("second", "outcome")


@pytest.mark.parametrize("who", SERVERS)
def test_another_hash_key_than_was_dealt_ends_the_round(who: str) -> None:
    ended = Seated(ROWS, REFERENCE, "hash").play(bent(who, "key", "key"))
    assert f"{who} opens another key than was dealt" in ended.errors[SERVERS[1 - SERVERS.index(who)]]


@pytest.mark.parametrize("check", CHEATING)
@pytest.mark.parametrize("at", range(0, 4 * 2, 3))
def test_each_flipped_bit_and_other_order_of_the_shuffle_is_found(check: Check, at: int) -> None:
    for source, kind in (("server", "w"), ("second", "q")):
        assert (
            "not"
            in Seated(ROWS, REFERENCE, check)
            .play(bent(source, kind, "rows", at))
            .errors[SERVERS[1 - SERVERS.index(source)]]
        )

        def swapped(who: str, letter: Letter, kind: str = kind) -> Letter:
            if letter.kind != kind or isinstance(letter.body, bytes):
                return letter
            return Letter(letter.target, kind, {"rows": letter.body["rows"][[1, 0, 2, 3]]})

        assert Seated(ROWS, REFERENCE, check).play(swapped).errors


def test_a_server_that_plays_on_with_other_rows_alone_is_found() -> None:
    # It sends one thing and computes with another: its own tags no longer fit.
    for kind in ("w", "q"):
        for check in CHEATING:
            ended = Seated(ROWS, REFERENCE, check).play(bent("server" if kind == "w" else "second", kind, "rows"))
            assert len(ended.errors) == 2


@pytest.mark.parametrize("check", CHEATING)
def test_another_reference_than_was_fixed_ends_the_round(check: Check) -> None:
    ended = Seated(ROWS, REFERENCE, check).play(bent("server", "late", "reference", 3))
    assert "server shows another reference than it had fixed" in ended.errors["second"]
    assert ended.kinds("second")[-1] == "receipt", "before anything was shuffled"


@pytest.mark.parametrize("check", CHECKS)
def test_a_missing_client_is_named_while_nothing_is_opened(check: Check) -> None:
    seated = Seated(ROWS, REFERENCE, check)
    here = [seated.up(name) for name in seated.names if name != "c2"]
    ended = seated.play(ups=dict.fromkeys(SERVERS, here))
    for name in SERVERS:
        error = ended.got[name]
        assert isinstance(error, TooFew)
        assert error.missing == {"c2"}
        assert not {"w", "q", "late", "hd", "z"} & set(ended.kinds(name))


@pytest.mark.parametrize("check", CHECKS)
def test_a_uniform_row_votes_for_the_missing(check: Check) -> None:
    seated = Seated(ROWS, REFERENCE, check, vote=True)
    here = [seated.up(name) for name in seated.names if name != "c2"]
    got = seated.play(ups=dict.fromkeys(SERVERS, here)).released
    assert got.present == ("c0", "c1", "c3")
    (seed,) = [m.body["seed"] for m in seated.dealt if m.target == "c2" and isinstance(m.body, Mapping)]
    mask = dealer.mask_of(seed.numpy().tobytes(), seated.deal)
    bits = torch.from_numpy(np.unpackbits(mask, bitorder="little")[:9])
    rows = torch.stack([bits if n == 2 else row for n, row in enumerate(ROWS)])
    want = LOOSE.against(list(rows), REFERENCE, Coins.from_seed(0))
    assert got.sums is not None
    assert torch.equal(got.sums, want["sums"])
    alone = seated.play(ups=dict.fromkeys(SERVERS, here[:1]))
    assert all(isinstance(alone.got[name], TooFew) for name in SERVERS), "above the quorum only"


def flipped(row: Tensor) -> Tensor:
    """Another row."""
    return 1 - row


@pytest.mark.parametrize("check", CHEATING)
def test_a_client_that_signs_two_rows_is_left_out_by_both(check: Check) -> None:
    seated = Seated(ROWS, REFERENCE, check, vote=True)
    others = [seated.up(name) for name in seated.names if name != "c1"]
    ups = {"server": [*others, seated.up("c1")], "second": [*others, seated.up("c1", flipped(ROWS[1]))]}
    assert seated.play(ups=ups).released.present == ("c0", "c2", "c3")
    ended = seated.again(vote=False).play(ups=ups)
    for name in SERVERS:
        error = ended.got[name]
        assert isinstance(error, TooFew)
        assert error.missing == {"c1"}


@pytest.mark.parametrize("check", CHEATING)
@pytest.mark.parametrize("hider", SERVERS)
def test_a_row_that_reached_one_server_counts_for_both(check: Check, hider: str) -> None:
    seated = Seated(ROWS, REFERENCE, check)
    everyone = [seated.up(name) for name in seated.names]
    ended = seated.play(ups={hider: everyone[:2], SERVERS[1 - SERVERS.index(hider)]: everyone})
    got = ended.released
    assert got.present == seated.names
    want = LOOSE.against(list(ROWS), REFERENCE, Coins.from_seed(0))
    assert got.sums is not None
    assert torch.equal(got.sums, want["sums"])


@pytest.mark.parametrize("check", CHEATING)
def test_rows_that_their_client_did_not_sign_do_not_count(check: Check) -> None:
    seated = Seated(ROWS, REFERENCE, check)
    everyone = [seated.up(name) for name in seated.names]
    body = {**everyone[0].body, "row": everyone[0].body["row"] ^ torch.tensor(1, dtype=torch.uint8)}
    ended = seated.play(ups=dict.fromkeys(SERVERS, (Received("c0", "up", body), *everyone[1:])))
    assert all(isinstance(error, TooFew) and error.missing == {"c0"} for error in ended.got.values())
    elsewhere = seated.again(attempt=1)
    old = elsewhere.play(ups=dict.fromkeys(SERVERS, everyone))
    assert all(isinstance(error, TooFew) and len(error.missing) == 4 for error in old.got.values()), "another attempt's"


def test_a_server_that_forwards_what_nobody_signed_is_named() -> None:
    seated = Seated(ROWS, REFERENCE, "hash")
    everyone = [seated.up(name) for name in seated.names]

    def bend(who: str, letter: Letter) -> Letter:
        if (who, letter.kind) != ("second", "forward") or isinstance(letter.body, bytes):
            return letter
        return Letter(letter.target, "forward", {**letter.body, "rows": letter.body["rows"] ^ 1})

    ended = seated.play(bend, ups={"server": everyone[:3], "second": everyone})
    assert "second forwarded a row that its client did not sign" in ended.errors["server"]


def test_a_server_that_names_other_rows_gets_no_signature() -> None:
    seated = Seated(ROWS, REFERENCE, "hash")
    everyone = [seated.up(name) for name in seated.names]
    ups = {"server": everyone[:3], "second": everyone}

    def silent(who: str, letter: Letter) -> Letter:
        """The second keeps to itself what the first lacks, and plays on with it."""
        if (who, letter.kind) != ("second", "forward") or isinstance(letter.body, bytes):
            return letter
        none = {name: values[:0] for name, values in letter.body.items() if name != "sent"}
        return Letter(letter.target, "forward", {**none, "sent": torch.zeros_like(letter.body["sent"])})

    ended = seated.play(silent, ups=ups)
    assert isinstance(ended.got["server"], TooFew)
    voted = seated.again(vote=True).play(silent, ups=ups)
    assert "second does not sign the same rows" in voted.errors["server"]
    assert not {"w", "late"} & set(voted.kinds("server"))


def test_weights_too_heavy_for_a_sum_end_the_round() -> None:
    class Heavy(ScoredSum):
        """A rule that is out of bounds."""

        def judge(self, distances: Any, size: int) -> Any:
            """Too much for two rows."""
            found = super().judge(distances, size)
            found.weights[:] = 1 << 30
            return found

    ended = Seated(ROWS, REFERENCE, "none", Heavy(gate=False, among=1)).play()
    assert all(isinstance(error, ProtocolError) for error in ended.got.values())
