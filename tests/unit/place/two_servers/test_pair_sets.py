"""Cut and choose: a dealer that is wrong in one of several sets is caught unless a coin keeps that very one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.laws.pipelines import BY_SIGN, PIPELINES, signed
from tests.laws.toy import absent, play, tap

from croupier.core.coins import Coins
from croupier.core.flow import Change, Letter, Received
from croupier.core.view import View
from croupier.engine.state import Round, Threat
from croupier.errors import CroupierError, IntegrityError, SpecError
from croupier.pipeline import Pipeline
from croupier.place.two_servers.pair import Pair
from croupier.statement import explain

DECKS = 4
FOUR = signed(Pair(malicious=False, decks=DECKS))


def change(who: str, kind: str, field: str, bend: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """What alters one field of one letter."""

    def changed(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        def bent(letter: Letter) -> Letter:
            if letter.kind != kind or letter.target != who or isinstance(letter.body, bytes):
                return letter
            return replace(letter, body={**letter.body, field: bend(letter.body[field].clone())})

        return tuple(map(bent, letters))

    return changed


def bit(values: torch.Tensor) -> torch.Tensor:
    """One bit changed."""
    values.reshape(-1)[0] ^= 1
    return values


def kept(done: Round) -> int:
    """The set that was used, as a client was told."""
    told = [
        letter.body["kept"]
        for box in done.views["c0"].inputs
        if isinstance(box, tuple) and box and isinstance(box[0], Received)
        for letter in box
        if letter.kind == "kept"
    ]
    return int(told[0])


def cheated(seed: int) -> str:
    """What is said of a dealer that flips a bit of what c1 is dealt in the first set; nothing when it is not caught."""
    threat = Threat(corrupted={"dealer": change("c1", "seed.0", "seed", bit)})
    try:
        play(FOUR, count=1, coins=Coins.from_seed(seed), threat=threat)
    except IntegrityError as error:
        return str(error)
    return ""


def test_a_wrong_dealer_is_caught_unless_its_wrong_set_is_kept() -> None:
    runs = range(60)
    said = [cheated(seed) for seed in runs]
    caught = ["the dealer is at fault" in words for words in said]
    assert caught == [bool(words) for words in said]
    used = [kept(play(FOUR, count=1, coins=Coins.from_seed(seed))[0]) for seed in runs]
    assert caught == [number != 0 for number in used]
    # Three quarters of 60 are 45; five deviations of 3.4 lie between these.
    assert 28 <= sum(caught) < 60
    assert set(used) == set(range(DECKS))


def test_a_wrong_set_that_is_kept_flips_votes_unseen() -> None:
    seed = next(s for s in range(60) if kept(play(FOUR, count=1, coins=Coins.from_seed(s))[0]) == 0)
    honest = play(FOUR, count=1, coins=Coins.from_seed(seed))[0].state.model.vector
    threat = Threat(corrupted={"dealer": change("c1", "seed.0", "seed", bit)})
    (done,) = play(FOUR, count=1, coins=Coins.from_seed(seed), threat=threat)
    assert not torch.equal(done.state.model.vector, honest)


SIGNED = signed(Pair(malicious=False, decks=DECKS), BY_SIGN, opens="signs")
TAGGED = signed(Pair(entropy=0, decks=DECKS))


@pytest.mark.parametrize(
    ("pipeline", "who", "kind", "field"),
    [
        (FOUR, "server", "hand0", "seed"),
        (FOUR, "second", "hand1", "numbers"),
        (SIGNED, "server", "gates0", "seed"),
        (SIGNED, "second", "gates1", "fitted"),
        (TAGGED, "second", "hand1", "tags"),
        (TAGGED, "second", "hand1", "value_tags"),
        (TAGGED, "server", "hand0", "bound"),
    ],
)
def test_whatever_is_dealt_wrong_is_seen(pipeline: Pipeline, who: str, kind: str, field: str) -> None:
    used = kept(play(pipeline, count=1)[0])
    threat = Threat(corrupted={"dealer": change(who, f"{kind}.{(used + 1) % DECKS}", field, bit)})
    with pytest.raises(CroupierError, match="was not dealt as its root says"):
        play(pipeline, count=1, threat=threat)


def test_a_root_that_was_not_fixed_is_refused() -> None:
    threat = Threat(corrupted={"dealer": change("c1", "opened", "roots", bit)})
    with pytest.raises(IntegrityError, match="another root than it had fixed"):
        play(FOUR, count=1, threat=threat)


@pytest.mark.parametrize("who", ["c1", "server"])
def test_a_dealer_that_fixes_other_roots_for_some_is_refused(who: str) -> None:
    threat = Threat(corrupted={"dealer": change(who, "roots", "digests", bit)})
    said = "given other digests" if who == "c1" else "given different digests"
    with pytest.raises(CroupierError, match=said):
        play(FOUR, count=1, threat=threat)


def other(values: torch.Tensor) -> torch.Tensor:
    """Another set."""
    return (values + 1) % DECKS


def test_a_server_that_names_another_set_to_a_client_is_seen() -> None:
    threat = Threat(corrupted={"second": change("c1", "kept", "kept", other)})
    with pytest.raises(IntegrityError, match="second keeps another set"):
        play(TAGGED, count=1, threat=threat)


def test_a_server_cannot_have_the_set_opened_that_is_used() -> None:
    heard: list[str] = []

    def listen(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        heard.extend(letter.kind for letter in letters)
        return letters

    threat = Threat(corrupted={"second": change("dealer", "kept", "kept", other), "dealer": listen})
    with pytest.raises(CroupierError):
        play(TAGGED, count=1, threat=threat)
    assert "roots" in heard
    assert "opened" not in heard


def test_sets_change_no_result() -> None:
    one = play(PIPELINES["two servers"], count=2)[-1].state.model.vector
    assert torch.equal(play(FOUR, count=2)[-1].state.model.vector, one)


@pytest.mark.parametrize("malicious", [False, True])
def test_a_uniform_row_stands_for_the_missing(malicious: bool) -> None:
    place = Pair(malicious=malicious, entropy=0, decks=2, missing="vote")
    (done,) = play(signed(place), count=1, threat=absent("c1"))
    assert done.present == ("c0", "c2", "c3")


def test_every_kind_is_described() -> None:
    threat, log = tap(SIGNED)
    (done,) = play(SIGNED, count=1, threat=threat)
    kinds = {letter.kind for letters in log.values() for letter in letters}
    assert kinds == set(SIGNED.schemas(done.views["server"].given))


def test_other_shuffles_have_no_sets() -> None:
    with pytest.raises(SpecError, match="use decks = 1, or shuffle = 'dealer'"):
        Pair(malicious=False, shuffle="onion", decks=2)


def test_the_statement_says_how_likely_a_wrong_dealer_goes_unseen() -> None:
    assert "but for a chance of 1 in 4" in str(explain(FOUR))
    assert "trusted for correctness" in str(explain(PIPELINES["two servers"]))
