"""Records in memory: rows, windows of a series, digests of them, and where files are looked for."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from croupier.errors import DataError
from croupier.learn.data import Data, Dataset, TensorRecords, Windows, fingerprint, folder_of, locate
from croupier.learn.datasets import (
    Activity,
    Cifar10,
    Digits,
    Fashion,
    Households,
    Mnist,
    Newsgroups,
    OwnData,
    Synthetic,
)


def rows(count: int = 6) -> TensorRecords:
    return TensorRecords(torch.arange(2.0 * count).reshape(count, 2), torch.arange(count) % 3)


def windows() -> Windows:
    return Windows(torch.arange(20.0), torch.tensor([0, 5, 9]), 4)


def test_rows_batch_and_take_pick_the_same_records() -> None:
    index = torch.tensor([4, 1])
    x, y = rows().batch(index)
    assert x.tolist() == [[8.0, 9.0], [2.0, 3.0]]
    assert y.tolist() == [1, 1]
    taken = rows().take(index)
    assert torch.equal(taken.x, x)
    assert len(taken) == 2


def test_rows_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(DataError, match="3 inputs but 2 targets"):
        TensorRecords(torch.zeros(3, 1), torch.zeros(2))


@given(st.data())
def test_windows_equal_the_naive_cut(data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 5))
    series = torch.randn(data.draw(st.integers(width + 1, 30)))
    place = st.integers(0, len(series) - width - 1)
    starts = torch.tensor(data.draw(st.lists(place, min_size=1, max_size=8)))
    index = torch.tensor(data.draw(st.lists(st.integers(0, len(starts) - 1), min_size=1, max_size=8)))
    full = Windows(series, starts, width)
    x = torch.stack([series[s : s + width] for s in starts[index].tolist()]).unsqueeze(2)
    y = torch.stack([series[s + width : s + width + 1] for s in starts[index].tolist()])
    for got in (full.batch(index), full.take(index).batch(torch.arange(len(index)))):
        assert torch.equal(got[0], x)
        assert torch.equal(got[1], y)


def test_taken_windows_hold_only_the_stretch_they_cover() -> None:
    taken = windows().take(torch.tensor([2, 1]))
    assert taken.series.tolist() == list(range(5, 14))
    assert taken.starts.tolist() == [4, 0]
    assert len(windows().take(torch.tensor([], dtype=torch.int64))) == 0


@pytest.mark.parametrize("start", [-1, 16])
def test_a_window_out_of_the_series_is_refused(start: int) -> None:
    with pytest.raises(DataError, match="reach out of the series: the series has 20 values"):
        Windows(torch.arange(20.0), torch.tensor([start]), 4)


def test_digests_are_fixed_for_ever() -> None:
    # Spelt out by hand: these bytes are what a manifest of last year was made from.
    x, y = np.arange(12, dtype="<f4").tobytes(), np.array([0, 1, 2, 0, 1, 2], "<i8").tobytes()
    told = b"text 4;rows" + b"float32 [6, 2];" + x + b"int64 [6];" + y
    assert rows().digest() == hashlib.sha256(told).hexdigest()
    series, starts = np.arange(20, dtype="<f4").tobytes(), np.array([0, 5, 9], "<i8").tobytes()
    told = b"text 9;windows 4" + b"float32 [20];" + series + b"int64 [3];" + starts
    assert windows().digest() == hashlib.sha256(told).hexdigest()


def test_digests_see_contents_shapes_and_types() -> None:
    base = torch.zeros(4, dtype=torch.int32)
    other = [base.reshape(2, 2), base.float(), base[:3], base + 1]
    assert len({fingerprint(part) for part in (base, *other)}) == 5
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint(torch.zeros(0, 3)) != fingerprint(torch.zeros(3, 0))
    # What lies in memory in another order is still the same contents.
    assert fingerprint(rows().x.t().contiguous().t()) == fingerprint(rows().x)


def test_records_stay_the_same_on_a_device() -> None:
    assert rows().to("cpu").digest() == rows().digest()
    assert windows().to(torch.device("cpu")).digest() == windows().digest()


def test_a_dataset_knows_its_shape_and_its_digest_sees_every_part() -> None:
    one = Dataset("toy", "classify", 3, rows(), rows(3), "none", "made up", labels=rows().y)
    other = Dataset("toy", "classify", 3, rows(), rows(2), "none", "made up", labels=rows().y)
    bare = Dataset("toy", "classify", 3, rows(), rows(3), "none", "made up")
    assert one.shape == (2,)
    assert one.outputs == 3
    assert len({one.digest, other.digest, bare.digest}) == 3
    assert Dataset("toy", "forecast", 0, windows(), windows(), "none", "made up").outputs == 1


def test_the_folder_is_the_named_one_else_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROUPIER_DATA", raising=False)
    assert folder_of(None) is None
    monkeypatch.setenv("CROUPIER_DATA", "there")
    assert folder_of(None) == Path("there")
    assert folder_of("here") == Path("here")


REMEDY = r'pass data FOLDER or set CROUPIER_DATA to a folder .* or use data = "digits"'


def test_a_missing_file_is_named_with_its_folder_and_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"^a\.gz is missing: no data folder was named; {REMEDY}"):
        locate(None, "a.gz")
    with pytest.raises(DataError, match=rf"^a\.gz is missing in {tmp_path}; {REMEDY}"):
        locate(tmp_path, "a.gz")
    with pytest.raises(DataError, match=rf"a\.gz is missing in {tmp_path}/no, which is no folder; {REMEDY}"):
        locate(tmp_path / "no", "a.gz")


def test_every_dataset_says_what_it_needs(tmp_path: Path) -> None:
    assert Data.choices() == [
        "activity", "cifar10", "digits", "ecg", "fashion-mnist", "households", "mnist", "newsgroups", "own",
        "synthetic",
    ]  # fmt: skip
    assert Digits.present(None)
    assert not Households.present(None)
    assert not Households.present(tmp_path)
    (tmp_path / "lcl_households.npz").touch()
    assert Households.present(tmp_path)
    assert len(Mnist.files) == 4
    assert all(
        part.licence for part in (Activity, Cifar10, Digits, Fashion, Households, Mnist, Newsgroups, OwnData, Synthetic)
    )
