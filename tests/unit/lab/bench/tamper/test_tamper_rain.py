"""The bench of cheating servers: nothing escapes, the control lets much by, and planted faults are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.shell import Shell

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, SubFlow
from croupier.core.view import replay
from croupier.errors import IntegrityError
from croupier.kernels.field import Bytes
from croupier.mpc import authentic, dealer
from croupier.mpc.authentic import as_tensor, byte_tensor, bytes_of
from croupier.mpc.deal_shares import DealSpec
from croupier.mpc.dealer import ShuffleShare
from croupier.mpc.tallies import Tally
from croupier.place.two_servers import messages
from croupier.place.two_servers.server_flow import ServerFlow
from croupier_lab.bench.tamper.rain import tampering
from croupier_lab.bench.tamper.rain.messages import RainTamperCell
from croupier_lab.bench.tamper.rain.round import RoundSetting, TamperedRound, TwoServerRound
from croupier_lab.bench.tamper.rain.tampering import (
    RainTamperSize,
    RainTrialEnd,
    cells,
    independence,
    measure,
    show,
    summary,
    tried,
)
from croupier_lab.bench.tamper.rain.trial import RainTrial

EVERY = cells()
KINDS = {
    "flip", "zeros", "random", "swap", "no element", "drop", "repeat", "echo", "replay", "reuse", "permute",
    "duplicate", "replace row", "paired", "colluders exchanged", "forced", "shift", "re-tag", "hide upload",
    "forward another", "equivocate", "roster", "reference", "published",
}  # fmt: skip
COINS = Coins.from_seed(7)


def some(each: int, *kinds: str, message: str = "") -> list[RainTamperCell]:
    """A few cells of every kind, or of some kinds, or of a message, spread over what there is."""
    found = []
    for kind in kinds or sorted(KINDS):
        same = [cell for cell in EVERY if cell.kind == kind and message in ("", cell.message)]
        found += same[:: max(1, len(same) // each)]
    return found


def ended(chosen: list[RainTamperCell], checked: bool = True, times: int = 1) -> list[RainTrialEnd]:
    """Every cell of a list, some times."""
    return tried(chosen, times * len(chosen), COINS, checked=checked)


def escapes(found: list[RainTrialEnd]) -> int:
    """How many got by."""
    return sum(one.verdict == "escapes" for one in found)


def test_every_message_is_tampered_with_by_whoever_sends_it() -> None:
    assert {cell.kind for cell in EVERY} == KINDS
    both = {
        "here", "forward", "root", "receipt", "key", "e-c", "e-o", "mul0", "mul1", "mul2", "blind", "zero", "hd", "z",
        "outcome", *(f"v{step}-{part}" for step in (0, 1, 2, 3) for part in ("c", "o", "s-c", "s-o")),
    }  # fmt: skip
    for party, own in (("server", {"w", "late", "model", "published"}), ("second", {"q"})):
        assert {cell.message for cell in EVERY if cell.party == party} == both | own | {"up", "hand"}


def test_nothing_escapes_and_nothing_is_opened_early() -> None:
    found = summary(ended(some(4)))
    assert found["escapes"] == 0
    assert set(found["kinds"]) == KINDS
    assert found["idle"] == 0
    assert found["no_opening_before_verdict"]["violations"] == 0
    assert found["no_opening_before_verdict"]["aborted"] > 20
    for name in ("permute", "duplicate", "replace row", "paired", "forced", "shift", "re-tag",
                 "roster", "reference", "published", "no element"):  # fmt: skip
        assert found["kinds"][name]["aborted"] == found["kinds"][name]["trials"] > 0, name
    assert found["kinds"]["repeat"]["aborted"] == 0


def test_rows_that_colluders_exchange_change_nothing() -> None:
    found = ended(some(99, "colluders exchanged"), times=2)
    assert escapes(found) == 0
    assert all(one.verdict == "harmless" for one in found if one.cell.party == "server")


def test_a_colluder_that_could_complain_does_not() -> None:
    chosen = [cell for cell in some(99, "equivocate", "drop") if cell.message == "up"]
    found = ended(chosen, times=6)
    assert escapes(found) == 0
    # Where a uniform row stands for the missing, the round goes on without its row, and else it starts again.
    assert {one.verdict for one in found if one.cell.kind == "equivocate"} == {"aborted", "harmless"}


def test_the_control_lets_much_by() -> None:
    found = summary(ended(some(4, "flip", "forced", "permute", "swap") + some(4, "shift", message="z"), False))
    assert found["escapes"] > 8
    assert found["kinds"]["forced"]["escapes"] > found["kinds"]["forced"]["trials"] / 2
    for name in ("permute", "shift"):
        assert found["kinds"][name]["escapes"] > 0, name


def test_an_honest_round_is_harmless_in_every_setting() -> None:
    for number, setting in enumerate(tampering.SETTINGS):
        trial = RainTrial(TwoServerRound(setting, COINS, number), "second", (), COINS.secure())
        assert trial.verdict(TamperedRound(), trial.run(TamperedRound())) == "harmless"


def test_a_wrong_result_that_everybody_signs_is_an_escape() -> None:
    trial = RainTrial(TwoServerRound(RoundSetting(), COINS), "second", (), COINS.secure())
    result = trial.run(TamperedRound())
    trial.round.rows["c0"] = 1 - trial.round.rows["c0"]
    assert trial.verdict(TamperedRound(), result) == "escapes"


def test_what_the_honest_server_sent_is_what_its_view_gives() -> None:
    round_ = TwoServerRound(RoundSetting(), COINS)
    result = round_.sit(keep=("second",))
    sent = list(round_.sent["second"])
    again, _ = replay(round_.parties()["second"], result.views["second"])
    assert [(one.kind, one.target) for one in again] == [(one.kind, one.target) for one in sent]


def test_independence_is_pearsons() -> None:
    seen = [("a", row, str(row != column)) for row, column in [(0, 0)] * 10 + [(0, 1)] * 20 + [(1, 1)] * 20]
    found = independence(seen)
    # By hand: 30 and 20 of 50 in rows, 30 and 20 in columns.
    assert found["statistic"] == pytest.approx(50 * (10 * 0 - 20 * 20) ** 2 / (30 * 20 * 30 * 20))
    assert found["degrees"] == 1
    assert found["p"] < 1e-4
    assert independence([("a", 0, "aborted"), ("a", 1, "aborted")]) == {"statistic": 0.0, "degrees": 0, "p": 1.0}


def exchanging(given: Given, me: int, peer: str, step: str, own: bytes, coins: Coins, *, bound: bool) -> SubFlow:
    """Both parties' bytes, where nobody minds an echo, and openings are compared or not."""
    nonce = coins.child("nonce", step).export()
    fixed = authentic._bound(given, step, me, own, nonce)
    (heard,) = yield authentic._swap(peer, f"{step}-c", {"digest": byte_tensor(fixed)})
    (shown,) = yield authentic._swap(peer, f"{step}-o", {"nonce": byte_tensor(nonce), "value": byte_tensor(own)})
    theirs = bytes_of(shown.body["value"])
    fits = authentic._bound(given, step, 1 - me, theirs, bytes_of(shown.body["nonce"]))
    if bound and fits != bytes_of(heard.body["digest"]):
        raise IntegrityError("opened another value")
    return theirs


def test_a_server_that_does_not_compare_openings_with_commitments_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentic, "exchanged", lambda *args: exchanging(*args, bound=False))
    found = ended(some(99, "forced"))
    assert {one.cell.message for one in found if one.verdict == "escapes"} >= {"w", "q", "z"}


def test_a_server_that_minds_no_echo_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two guards: a commitment names its party, and an echo is refused. Either suffices.
    bound = authentic._bound
    monkeypatch.setattr(authentic, "_bound", lambda given, step, who, *rest: bound(given, step, 0, *rest))
    assert escapes(ended(some(99, "forced", "echo"))) == 0
    monkeypatch.setattr(authentic, "exchanged", lambda *args: exchanging(*args, bound=True))
    assert escapes(ended(some(99, "forced"))) > 0


def test_a_server_that_opens_distances_before_the_check_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = ServerFlow._sound

    def hasty(self: ServerFlow, material: ShuffleShare, tally: Tally, rows: Bytes, hidden: Bytes) -> SubFlow:
        held = tally.distances(hidden, np.zeros(self.deal.width, np.uint8))
        yield Exchange((Letter(self.peer, "hd", {"value": as_tensor(held.values)}),))
        yield from sound(self, material, tally, rows, hidden)

    monkeypatch.setattr(ServerFlow, "_sound", hasty)
    locked = summary(ended(some(2, "flip", "permute", message="w")))["no_opening_before_verdict"]
    assert locked["violations"] == locked["aborted"] > 0


def test_aborts_that_depend_on_the_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = some(99, "flip", "paired", message="w")
    fair = summary(ended(chosen))["order"]
    assert fair["aborted"] == fair["trials"] == 40
    assert fair["p"] > 0.001
    deals: dict[tuple[int, int], Coins] = {}
    letters = messages.letters

    def noted(deal: DealSpec, given: Given, coins: Coins) -> Iterator[Letter]:
        deals[given.round, given.attempt] = coins
        return letters(deal, given, coins)

    def first_only(self: ServerFlow, material: ShuffleShare, tally: Tally, rows: Bytes, hidden: Bytes) -> SubFlow:
        """Look at the first row alone."""
        dealt_root = deals[self.given.round, self.given.attempt]
        nodes = [Coins(dealt_root.child("hand", me).export()) for me in (0, 1)]
        one, two = (node.child("order").secure().permutation(self.deal.rows) for node in nodes)
        masks = np.stack([dealer.mask_of(seed, self.deal) for seed in dealer.seeds(self.deal, dealt_root)])
        hiding = masks[one[two]] ^ dealer._masks(self.deal, nodes[0])[two] ^ dealer._masks(self.deal, nodes[1])
        if ((hidden ^ hiding)[0] != (rows ^ masks)[one[two]][0]).any():
            raise IntegrityError("the first row is wrong")
        yield Exchange()

    monkeypatch.setattr(messages, "letters", noted)
    monkeypatch.setattr(ServerFlow, "_sound", first_only)
    found = summary(ended(chosen, times=2))["order"]
    assert 0 < found["aborted"] < found["trials"]
    assert found["p"] < 1e-6


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(monkeypatch, capsys)
    assert "trials = 20" in shell("bench", "tamper", "--system", "rain", "--trials", "20", "--print-config")[1]
    chosen = some(3, "forced", "permute")
    monkeypatch.setattr(tampering, "cells", lambda: chosen)
    found = shell.json("bench", "tamper", "--system", "rain", "--trials", str(len(chosen)))
    assert {"trials", "escapes", "kinds", "control", "no_opening_before_verdict", "order"} <= set(found)
    assert found["escapes"] == 0
    assert found["control"]["escapes"] > 0


def test_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = some(2, "flip", message="w")
    monkeypatch.setattr(tampering, "cells", lambda: chosen)
    found: dict[str, Any] = measure(RainTamperSize(trials=4), 1)
    show(found)
    out = capsys.readouterr().out
    assert "4 trials, 0 escapes" in out
    assert "opened before its check: 0 of 4 aborted rounds" in out
    assert "rows of the shuffle touched:" in out
