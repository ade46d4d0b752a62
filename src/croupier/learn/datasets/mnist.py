"""MNIST from its four original files.

Used by the presets `mnist` and `tazza-mnist`, and by figures of RNS, RAIN and Tazza (`croupier_lab.papers`).
"""

from __future__ import annotations

from typing import ClassVar

from croupier.learn.datasets.idx import NAMES, Idx


class Mnist(Idx, use="mnist"):
    """70,000 handwritten digits of 28 x 28 pixels, 10 classes."""

    licence: ClassVar[str] = "not stated by its source"
    source: ClassVar[str] = "MNIST (LeCun, Cortes and Burges), the original distribution"
    files: ClassVar[tuple[str, ...]] = tuple(f"mnist/{name}" for name in NAMES)
