"""Epochs, frames, and how often a fresh cohort knows nothing of the last."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from croupier.core.coins import Coins
from croupier.core.epoch import Epoch, Frame, disjoint_cohort_chance
from croupier.errors import ProtocolError, RangeError, WireError

ROSTER = ("a", "b", "c", "d", "e", "f", "g")
EPOCH = Epoch(3, 10, ROSTER, bytes(range(32)))


def test_a_frame_has_one_form_of_forty_bytes() -> None:
    frame = EPOCH.frame(12)
    assert frame == Frame(3, 12, bytes(range(32)))
    assert frame.pack() == bytes([3, 0, 0, 0, 12, 0, 0, 0, *range(32)])
    assert Frame.unpack(frame.pack()) == frame
    with pytest.raises(WireError, match="40 bytes, not 39"):
        Frame.unpack(frame.pack()[:-1])


def test_frames_that_cannot_be() -> None:
    for number, at in ((-1, 0), (0, 1 << 32)):
        with pytest.raises(RangeError, match="a frame holds 0 to"):
            Frame(number, at, bytes(32))
    with pytest.raises(RangeError, match="digest of 31 bytes"):
        Frame(0, 0, bytes(31))
    with pytest.raises(RangeError, match="once, in order"):
        Epoch(0, 0, ("b", "a"), bytes(32))


def test_a_round_before_the_epoch_has_no_frame_in_it() -> None:
    with pytest.raises(ProtocolError, match="round 9 lies before epoch 3, which starts with round 10"):
        EPOCH.frame(9)


def test_one_frame_can_be_kept_for_the_epoch() -> None:
    assert EPOCH.frame(10) != EPOCH.frame(11)
    assert EPOCH.frame(10, kept=True) == EPOCH.frame(11, kept=True)


def test_a_roster_changes_in_steps_that_no_two_groups_can_take_apart() -> None:
    EPOCH.follows(ROSTER[:5], 2)
    with pytest.raises(ProtocolError, match="only 4 of the 7 clients of epoch 3 stay, and 5 must"):
        EPOCH.follows((*ROSTER[:4], "h", "i"), 2)


def test_a_third_of_the_rounds_hold_nobody_who_knows_the_last_rule() -> None:
    share = disjoint_cohort_chance(100, 10)
    assert share == pytest.approx(0.3305, abs=5e-5)
    # The same by drawing cohorts as the round loop does.
    drawn = [set(Coins.from_seed(4).child("cohort", t).sampler().choice(100, 10, replace=False)) for t in range(2001)]
    met = sum(not before & now for before, now in pairwise(drawn))
    assert abs(met / 2000 - share) < 4 * math.sqrt(share * (1 - share) / 2000)


def test_everybody_knows_when_everybody_comes() -> None:
    assert disjoint_cohort_chance(10, 10) == disjoint_cohort_chance(10, 6) == 0
    assert disjoint_cohort_chance(10, 5) == pytest.approx(1 / 252)
    for cohort in (0, 11):
        with pytest.raises(RangeError, match="invite 1 to 10"):
            disjoint_cohort_chance(10, cohort)
