"""Distortions of pictures, against other ways to say the same."""

from __future__ import annotations

import colorsys

import pytest
import torch
from torch import Tensor

from croupier.errors import SpecError
from croupier.learn.distort import CLEAN, Clean, Colour, Distortion, Mirror, Rotate, _turn_hue


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(channels: int = 3, side: int = 8, count: int = 4) -> Tensor:
    return torch.rand(count, channels, side, side, generator=drawn(3))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize("degrees", [0.0, 360.0, -360.0])
def test_a_whole_turn_changes_nothing(degrees: float, side: int, channels: int) -> None:
    x = pictures(channels, side)
    assert torch.allclose(Rotate(degrees=degrees)(x, drawn()), x, atol=1e-5)


@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_quarter_turns_are_exact_and_go_counterclockwise(turns: int, side: int) -> None:
    """As torch.rot90 turns with a positive count: what was at the right comes to the top."""
    x = pictures(side=side)
    turned = Rotate(degrees=90.0 * turns)(x, drawn())
    assert torch.allclose(turned, torch.rot90(x, turns, (2, 3)), atol=1e-5)
    assert not torch.allclose(turned, torch.rot90(x, -turns, (2, 3)), atol=0.1) or turns == 2


def test_a_turned_picture_is_black_where_nothing_was() -> None:
    x = torch.ones(1, 1, 9, 9)
    turned = Rotate(degrees=45.0)(x, drawn())
    assert turned[0, 0, 0, 0] == turned[0, 0, -1, -1] == 0
    assert turned[0, 0, 4, 4] == pytest.approx(1.0)
    assert torch.equal(x, torch.ones(1, 1, 9, 9))


@pytest.mark.parametrize("upright", [True, False])
def test_a_mirror_twice_changes_nothing(upright: bool) -> None:
    x, mirror = pictures(), Mirror(upright=upright)
    assert torch.equal(mirror(mirror(x, drawn()), drawn()), x)
    once = mirror(x, drawn())
    assert torch.equal(once[0, 0, 0, 0], x[0, 0, 0, -1] if upright else x[0, 0, -1, 0])
    assert not torch.equal(once, x)


def test_clean_is_nothing_and_takes_anything() -> None:
    for x in (pictures(), torch.rand(4, 6)):
        assert CLEAN(x, drawn()) is x
    assert Clean() == CLEAN


def test_colours_within_nothing_stay_as_they_are() -> None:
    x = pictures()
    assert torch.allclose(Colour(x=0.0)(x, drawn()), x, atol=1e-6)


def test_colours_change_picture_by_picture_within_bounds() -> None:
    x = pictures()[:1].repeat(4, 1, 1, 1)
    out = Colour(x=0.4)(x, drawn())
    assert out.shape == x.shape
    assert float(out.min()) >= 0
    assert float(out.max()) <= 1
    assert not any(torch.allclose(out[0], out[number], atol=1e-3) for number in (1, 2, 3))
    assert torch.equal(out, Colour(x=0.4)(x, drawn()))
    assert not torch.equal(out, Colour(x=0.4)(x, drawn(1)))


def test_grey_in_colour_stays_grey() -> None:
    """Neither saturation nor hue can give colour to what has none."""
    x = torch.rand(3, 1, 5, 5, generator=drawn(2)).repeat(1, 3, 1, 1)
    out = Colour(x=0.6)(x, drawn())
    assert torch.allclose(out[:, 0], out[:, 1], atol=1e-6)
    assert torch.allclose(out[:, 0], out[:, 2], atol=1e-6)
    assert not torch.allclose(out, x, atol=1e-2)


@pytest.mark.parametrize("turns", [0.0, 0.05, -0.1, 1 / 3, 0.5, 1.0])
def test_hue_is_the_colour_wheel_of_another_library(turns: float) -> None:
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 0.25, 1.0])] * 3)
    colours = torch.cat([corners, torch.rand(40, 3, generator=drawn())])
    out = _turn_hue(colours.T.reshape(1, 3, 1, -1), torch.full((1, 1, 1, 1), turns))[0, :, 0].T
    for colour, got in zip(colours.tolist(), out.tolist(), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*colour)
        assert got == pytest.approx(colorsys.hsv_to_rgb((hue + turns) % 1.0, saturation, value), abs=1e-5)


@pytest.mark.parametrize("noise", [Rotate(), Mirror(), Colour()])
def test_what_is_no_picture_is_refused(noise: Distortion) -> None:
    with pytest.raises(SpecError, match=rf"noise = '{noise.use}': needs pictures, but inputs have the shape \(64,\)"):
        noise(torch.rand(5, 64), drawn())


@pytest.mark.parametrize("x", [pictures(1), 2 * pictures(), pictures() - 0.5], ids=["grey", "above 1", "below 0"])
def test_colour_refuses_what_has_none(x: Tensor) -> None:
    with pytest.raises(SpecError, match="needs RGB pictures with values from 0 to 1; use 'rotate' or 'mirror'"):
        Colour()(x, drawn())


@pytest.mark.parametrize("x", [-0.1, 1.1])
def test_how_far_colours_may_go_is_bounded(x: float) -> None:
    with pytest.raises(SpecError, match=r"^Colour\(x="):
        Colour(x=x)
