"""The bench of residues: what it says is there, adds up, and comes from work that is right."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.shell import Shell

from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.encode.encoder import Brief, Released
from croupier.encode.grid import OnGrid
from croupier_lab.bench.speed import rns_chunks, rns_encoding
from croupier_lab.bench.speed.process import apart, resident
from croupier_lab.bench.speed.rns_chunks import Kind, RnsEncodingSize, draw

TIMES = ("encode_s", "decode_s", "shuffle_bits_s", "shuffle_mod_s", "copy_s", "plain_encode_s", "peak_bytes")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: a fresh one takes seconds to load."""

    def work(what: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
        return what(*arguments)

    monkeypatch.setattr(rns_encoding, "apart", work)
    monkeypatch.setattr(rns_chunks, "CHUNK", 1 << 11)
    monkeypatch.setattr(rns_encoding, "PART", 1 << 10)
    monkeypatch.setattr(rns_encoding, "SMALLEST", 1000)


@pytest.mark.usefixtures("here")
def test_what_is_measured_is_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell(monkeypatch, capsys)
    words = ("--params", "5000", "--clients", "4", "--digits", "3", "--repeats", "2", "--sweep", "--largest", "10000",
        "--plot", "sweep.svg",
    )  # fmt: skip
    found = shell.json("bench", "rns", *words)
    assert all(found[key] > 0 for key in TIMES)
    assert found["bits_per_parameter"] == sum(m - 1 for m in found["moduli"])
    assert found["bytes_per_client"] == -(-5000 * found["bits_per_parameter"] // 8)
    assert found["copy_bytes"] == 4 * 5000 + found["bytes_per_client"]
    assert 0.1 < found["largest_error_units"] <= 0.51
    assert found["plain_measured_on"] == 1024
    assert found["encode_to_copy"] == pytest.approx(found["encode_s"] / found["copy_s"])
    assert found["plain_to_encode"] == pytest.approx(found["plain_encode_s"] / found["encode_s"])
    assert [(point["release"], point["params"]) for point in found["sweep"]] == [
        (release, params) for release in ("mod", "sum-servers", "bits") for params in (1000, 10_000)
    ]
    assert all(point["seconds"] > 0 for point in found["sweep"])
    drawn = ElementTree.fromstring(Path("sweep.svg").read_text("utf-8"))
    lines = [node for node in drawn.iter() if node.get("id", "").startswith("line-")]
    paths = [str(line[0].get("d")) for line in lines]
    assert [path.count("M") + path.count("L") for path in paths] == [2] * 6
    assert shell.refused("bench", "rns", "--plot", "x.svg").startswith("--plot = 'x.svg': only a sweep is drawn")
    code, out, _ = shell("bench", "rns", *words)
    assert code == 0
    assert "shuffle all bits" in out
    assert "scaled up from 1024 parameters" in out
    assert out.count("\nmod ") == 2


@pytest.mark.parametrize("kind", ["mod", "sum-servers", "bits"])
def test_every_way_of_the_sweep_is_timed_up_to_decoded_numbers(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    found, decode = list[Gathered](), OnGrid.decode

    def slowly(self: OnGrid, released: Released, brief: Brief) -> Gathered:
        gathered = decode(self, released, brief)
        if released.layout is not None and released.layout.size == 3000:  # not what only warms up
            found.append(gathered)
            time.sleep(0.3)
        return gathered

    monkeypatch.setattr(OnGrid, "decode", slowly)
    size = RnsEncodingSize(params=3000, clients=4, digits=3)
    point = rns_chunks.sweep_point(kind, size, 5)
    assert point["seconds"] > 0.3
    sent = [draw(Coins.from_seed(5).child(who, 0), 3000).astype(np.float64) for who in range(4)]
    assert len(found) == 1
    assert found[0].sums is not None
    assert np.abs(found[0].sums.numpy() - np.sum(sent, 0)).max() < 4 * 0.51e-3


def test_a_fresh_process_has_a_mark_of_its_own() -> None:
    ballast = np.ones(1 << 28, np.uint8)
    mark = apart(_mark)
    assert mark["high"] >= mark["now"] > 10_000_000
    assert mark["high"] < resident("VmHWM")
    assert len(ballast) == 1 << 28


def _mark() -> dict[str, Any]:
    return {"now": resident("VmRSS"), "high": resident("VmHWM")}


def test_the_plain_form_is_algorithm_1() -> None:
    bits = np.unpackbits(rns_encoding._algorithm1(np.array([0.3, -0.0625], np.float32), (3, 5, 7), 1))
    assert "".join(map(str, bits[:30])) == "000" + "11100" + "1110000" + "110" + "11110" + "1111110"


def test_drawn_parameters_fill_half_the_scale() -> None:
    values = draw(Coins.from_seed(1), 10_000)
    assert values.dtype == np.float32
    assert 0.49 < values.max() <= 0.5
    assert -0.5 <= values.min() < -0.49
    assert abs(values.mean()) < 0.02


def test_bench_rns_prints_what_it_would_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Shell(monkeypatch, capsys).json("bench", "rns", "--params", "7", "--print-config")
    assert found == {"params": 7, "clients": 10, "digits": 5, "repeats": 5}
