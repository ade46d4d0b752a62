"""Pictures: what is in the rows is in the file, where it belongs, and the same rows give the same bytes."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import torch

from croupier.learn.png import png
from croupier_lab.drawing.lines import LineStyle, lines, sweep
from croupier_lab.drawing.pictures import GREY, Histogram, cluster_map, sheet
from croupier_lab.drawing.points import ScatterDot, ScatterPanel, scatter, spots

PANELS = {"one": {"a": [("x", {"rate": 0.2}), ("y", {"rate": 0.4})]}}


def texts(drawn: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(drawn).iter() if node.tag.endswith("text")]


def places(drawn: str, gid: str) -> list[tuple[float, float]]:
    """How far right and how far down the points of a line are."""
    path = re.search(rf'<g id="{gid}">\s*<path d="([^"]*)"', drawn)
    assert path is not None
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", path[1])]


def heights(drawn: str, gid: str) -> list[float]:
    return [y for _, y in places(drawn, gid)]


def test_the_same_rows_give_the_same_bytes() -> None:
    assert lines(PANELS, "title", "along") == lines(PANELS, "title", "along")
    assert "<dc:date>" not in lines(PANELS, "title", "along")


def test_words_are_escaped_and_values_stand_within_the_panel() -> None:
    high = {"rate": 1.7, "prior": -0.2, "low": 0.1, "high": 0.3}
    drawn = lines({"a < b": {"x": [("1", {"rate": 1.0}), ("2", high)]}}, "t & u", "round")
    assert drawn.startswith("<svg")
    assert "<title>t &amp; u</title>" in drawn
    assert {"a < b", "round", "x", "prior"} <= set(texts(drawn))
    first, second = heights(drawn, "line-0-0")
    assert first == pytest.approx(second)


def test_limits_are_the_ends_of_a_panel() -> None:
    rates = {"one": {"a": [(str(rate), {"rate": rate}) for rate in (0.8, 0.9, 1.0)]}}
    low, middle, high = heights(lines(rates, "title", "along", LineStyle(limits=(0.8, 1.0))), "line-0-0")
    assert low - middle == pytest.approx(middle - high)
    rates = {"one": {"a": [(str(rate), {"rate": rate, "low": -1.0, "high": rate}) for rate in (2.0, 10.0, 50.0)]}}
    drawn = lines(rates, "title", "along", LineStyle(log=True, priors=False))
    low, middle, high = heights(drawn, "line-0-0")
    assert low - middle == pytest.approx(middle - high)
    assert {"1", "10", "100"} <= set(texts(drawn))


def test_points_without_order_are_not_joined() -> None:
    assert heights(lines(PANELS, "title", "along", LineStyle(priors=False)), "line-0-0")
    loose = lines(PANELS, "title", "along", LineStyle(priors=False, joined=False))
    assert not re.search(r'<g id="line-0-0">\s*<path', loose)
    assert "prior" not in texts(loose)
    assert "prior" in texts(lines(PANELS, "title", "along"))


def test_a_level_is_named_and_numbers_stand_where_they_are() -> None:
    panels = {"one": {"a": [("0.1", {"rate": 0.2}), ("0.2", {"rate": 0.4}), ("0.9", {"rate": 0.4})]}}
    drawn = lines(panels, "title", "share", LineStyle(priors=False, numbers=True, level=("alone", 0.3)))
    assert "alone" in texts(drawn)
    first, second, third = (x for x, _ in places(drawn, "line-0-0"))
    assert third - second == pytest.approx(7 * (second - first), rel=1e-3)


def test_a_sweep_has_a_line_for_each_release_in_both_panels() -> None:
    points = [
        {"release": name, "params": size, "seconds": size / 1e6, "peak_growth_bytes": 0}
        for name in ("mod", "bits")
        for size in (1000, 10_000)
    ]
    drawn = sweep(points, "a sum", "parameters")
    assert [len(heights(drawn, f"line-{panel}-{at}")) for panel in (0, 1) for at in (0, 1)] == [2] * 4
    assert "<title>Time and memory of a sum against the number of parameters</title>" in drawn


def test_dots_have_the_mark_of_their_kind_and_guides_their_names() -> None:
    dots = [ScatterDot(0.2, 0.9, 0.8, 1.0, "FedAvg", "none"), ScatterDot(0.3, 0.5, 0.4, 0.6, "Krum", "noise")]
    panel = ScatterPanel("flip", "distance", "accuracy", dots, {"plain": 0.2, "pruning": 0.3})
    drawn = scatter([panel], "title", {"none": "square", "noise": "ring", "other": "circle"})
    assert 'id="square-0-0"' in drawn
    assert 'id="ring-0-1"' in drawn
    shown = texts(drawn)
    assert {"flip", "distance", "accuracy", "plain", "pruning", "FedAvg", "Krum", "none", "noise"} <= set(shown)
    assert "other" not in shown


def test_spots_are_drawn_even_where_there_are_none() -> None:
    drawn = spots({"empty": ([], ["a"]), "one": ([[0.0, 1.0, 0]], ["a"])}, "t")
    assert {"empty", "one", "a"} <= set(texts(drawn))


def test_a_sheet_shows_every_image_and_escapes_what_it_is_told() -> None:
    image = png(torch.zeros(1, 4, 4))
    drawn = sheet("x & y", [("c > d", [image, image])], Histogram({"a < b": [0.0, 1.0]}, 0.0, 1.0, "dB"))
    assert {"x & y", "c > d", "a < b", "dB"} <= set(texts(drawn))
    assert drawn.count("<image") == 2


def test_the_map_has_a_square_for_everybody_present_and_grey_for_the_lonely() -> None:
    rounds = [{"a": 0, "b": 0, "x": 1}, {"a": 0, "x": 1}]
    drawn = cluster_map(rounds, ["a", "b"], ["x"], "a < b")
    assert len(re.findall(r'id="\w+-round-\d-cluster-\d"', drawn)) == 5
    assert drawn.count(f"fill: {GREY}") == 2
    assert "a < b" in texts(drawn)
