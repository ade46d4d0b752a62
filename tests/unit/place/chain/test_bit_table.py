"""Places of single bits: they move as the release moves bits, inside their blocks; the coin draws numbers evenly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tests.laws.pipelines import PIPELINES
from tests.laws.toy import CLIENTS, LAYOUT

from croupier.core.coins import Coins
from croupier.place.chain.bit_table import BitTable, at_least, passes
from croupier.place.chain.table import MixTable
from croupier_lab.bench.tamper.proven_chain import caught

TABLE = BitTable(MixTable(PIPELINES["bits, chain that proves"], CLIENTS, LAYOUT))
MANY = len(CLIENTS) * TABLE.length


def test_places_move_as_the_release_moves_bits() -> None:
    bits = (Coins.from_seed(1).secure().below(2, MANY)).astype(np.uint8)
    seed = Coins.from_seed(2).export()
    order = TABLE.order(CLIENTS, seed)
    assert sorted(order.tolist()) == list(range(MANY))
    moved = TABLE.table.move(CLIENTS)(TABLE.rows(bits), Coins(seed))
    assert np.array_equal(TABLE.rows(bits[order]), moved)


def test_blocks_share_out_all_places_and_none_is_left_by_a_bit() -> None:
    blocks = TABLE.blocks(len(CLIENTS))
    every = np.concatenate([rows.reshape(-1) for rows in blocks])
    assert sorted(every.tolist()) == list(range(MANY))
    assert [rows.shape for rows in blocks] == [(TABLE.slots, len(CLIENTS) * width) for width in TABLE.widths]
    order = TABLE.order(CLIENTS, Coins.from_seed(2).export())
    for rows in blocks:
        for row in rows:
            assert set(order[row].tolist()) == set(row.tolist())


def test_a_rows_bits_are_those_that_travel() -> None:
    row = torch.from_numpy(Coins.from_seed(3).secure().below(256, -(-TABLE.length // 8)).astype(np.uint8))
    row[-1] &= 0xFF >> -TABLE.length % 8
    assert np.array_equal(TABLE.rows(TABLE.bits(row))[0], row.numpy())


def test_the_coin_chooses_so_many_numbers_evenly() -> None:
    counts = np.zeros(TABLE.slots, np.int64)
    for number in range(400):
        chosen = TABLE.chosen(Coins.from_seed(number).export(), 0.1)
        assert len(set(chosen)) == len(chosen) == TABLE.asked(0.1)
        counts[chosen] += 1
    assert float(chisquare(counts).pvalue) > 1e-4


@pytest.mark.parametrize("changed", [1, 3, 20])
def test_the_chance_is_that_of_draws_and_never_below_the_one_that_is_said(changed: int) -> None:
    proven = TABLE.asked(0.1)
    drawn = [bool(min(TABLE.chosen(Coins.from_seed(one).export(), 0.1)) < changed) for one in range(600)]
    chance = caught(TABLE.slots, proven, changed)
    assert abs(np.mean(drawn) - chance) < 4 * np.sqrt(chance * (1 - chance) / 600) + 1e-9
    assert chance >= at_least(0.1, [changed])[0] - 1e-12


@pytest.mark.parametrize(("changed", "tries"), [(1, 1), (3, 4), (20, 30)])
def test_one_of_several_tries_passes_no_more_often_than_is_said(changed: int, tries: int) -> None:
    """Of so many coins, the ones that prove none of the first numbers."""
    proven, games = TABLE.asked(0.1), 300
    drawn = [
        any(min(TABLE.chosen(Coins.from_seed(game).child(one).export(), 0.1)) >= changed for one in range(tries))
        for game in range(games)
    ]
    chance = 1 - caught(TABLE.slots, proven, changed) ** tries
    assert abs(np.mean(drawn) - chance) < 4 * np.sqrt(chance * (1 - chance) / games) + 1e-9
    assert chance <= passes(0.1, changed, tries) + 1e-12


def test_a_small_chance_is_not_said_to_be_none() -> None:
    assert passes(0.5, 100, 100) == pytest.approx(100 * 0.5**100)
    assert passes(1.0, 1, 100) == 0.0
    assert passes(1e-20, 1, 1) == 1.0


def test_more_changes_than_numbers_stay_unproven_are_always_caught() -> None:
    assert caught(10, 2, 9) == 1.0
    assert caught(10, 2, 0) == 0.0


def test_marked_places_are_told_by_number() -> None:
    wrong = np.zeros(MANY, bool)
    wrong[TABLE.length + 3 * TABLE.wide + 1] = True
    assert TABLE.marked(wrong).nonzero()[:, 0].tolist() == [3]


def test_a_table_of_other_coordinates_has_no_bits() -> None:
    other = BitTable(replace(TABLE.table, mechanism=PIPELINES["model shuffle"]))
    assert other.widths == ()
    assert other.wide == 0
