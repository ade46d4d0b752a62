"""Fashion-MNIST from its four original files.

The same form as MNIST (`idx` reads both), other pictures: a harder task at the same size. RAIN's figures on robustness
train on it, and InstaHide (`learn.augment`) blends its pictures into others unless told otherwise.
"""

from __future__ import annotations

from typing import ClassVar

from croupier.learn.datasets.idx import NAMES, Idx


class Fashion(Idx, use="fashion-mnist"):
    """70,000 pictures of clothes of 28 x 28 pixels, 10 classes."""

    licence: ClassVar[str] = "MIT"
    source: ClassVar[str] = "Fashion-MNIST (Xiao, Rasul and Vollgraf), Zalando Research"
    files: ClassVar[tuple[str, ...]] = tuple(f"fashion-mnist/{name}" for name in NAMES)
