"""Who is present, by place: what a bitmap says, whoever asks."""

from __future__ import annotations

import torch

from croupier.place.labels import places_of


def test_places_are_those_that_a_bitmap_marks() -> None:
    bitmap = torch.tensor([1, 0, 0, 1, 1], dtype=torch.uint8)
    assert places_of(bitmap).tolist() == [0, 3, 4]
    # The same bits are the same places; other bits in the same tensor are others.
    assert places_of(bitmap.clone()) is places_of(bitmap)
    bitmap[1] = 1
    assert places_of(bitmap).tolist() == [0, 1, 3, 4]
    assert places_of(torch.zeros(3, dtype=torch.uint8)).tolist() == []


def test_nobody_can_change_them() -> None:
    assert not places_of(torch.ones(3, dtype=torch.uint8)).flags.writeable
