"""The search for updates in bytes: it finds each form wherever it begins, and not what everybody may see."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from croupier.kernels.pack import pack
from croupier_lab.bench.flower.traces import Haystack, TracedUpdate

COUNT, UNIT, BITS = 300, 1e6, 30
_DRAWN = np.random.default_rng(3)
START = _DRAWN.normal(0.0, 0.1, COUNT).astype(np.float32)
UPDATE = START + _DRAWN.normal(0.0, 0.01, COUNT).astype(np.float32)
SOUGHT = TracedUpdate(UPDATE, START, 7.0, units=(UNIT,), bits=(BITS,))
NOISE = _DRAWN.bytes(50_000)


@pytest.mark.parametrize(
    ("name", "kind", "offset"),
    [
        ("update", "<f4", 0),
        ("update", ">f4", 1),
        ("difference", "<f8", 3),
        ("weighed", ">f8", 5),
        ("weighed", "<f4", 2),
    ],
)
def test_floats_are_found_wherever_they_begin(name: str, kind: str, offset: int) -> None:
    held = {"update": UPDATE, "difference": UPDATE - START, "weighed": UPDATE * np.float32(7.0)}[name]
    found = SOUGHT.traces(Haystack(NOISE + b"x" * offset + held.astype(kind).tobytes() + NOISE))
    assert found[f"{name} {kind}"] > 0.9 * COUNT


def test_two_neighbours_suffice() -> None:
    found = SOUGHT.traces(Haystack(NOISE + UPDATE[100:102].tobytes() + NOISE))
    assert found == {"update <f4": 1}


@pytest.mark.parametrize("kind", ["<i4", ">i4"])
def test_whole_numbers_are_found(kind: str) -> None:
    numbers = np.floor(UPDATE.astype(np.float64) * UNIT)
    found = SOUGHT.traces(Haystack(NOISE + numbers.astype(kind).tobytes()))
    assert found[f"update {kind} x 1e+06 by floor"] > COUNT // 2


@pytest.mark.parametrize("offset", [0, 5])
def test_packed_residues_are_found_at_any_bit(offset: int) -> None:
    residues = np.rint(UPDATE.astype(np.float64) * UNIT).astype(np.int64) % (1 << BITS)
    bits = np.unpackbits(pack(residues, (BITS,)), bitorder="little")
    shifted = np.packbits(np.concatenate([np.ones(offset, np.uint8), bits]), bitorder="little")
    assert SOUGHT.traces(Haystack(NOISE + shifted.tobytes()))["packed in 30 bits x 1e+06"] > COUNT


def test_what_was_handed_out_is_no_trace() -> None:
    still = dataclasses.replace(SOUGHT, update=np.where(np.arange(COUNT) < 200, START, UPDATE).astype(np.float32))
    assert still.traces(Haystack(NOISE + START.tobytes())) == {}
    assert still.traces(Haystack(NOISE + still.update.tobytes()))["update <f4"] < 110
    assert SOUGHT.traces(Haystack(NOISE + bytes(5_000))) == {}
