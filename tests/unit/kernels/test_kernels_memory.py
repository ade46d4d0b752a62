"""Freed memory is kept where the C library can be asked, and nothing happens where it cannot."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from croupier.kernels import memory

FAULTS = """
import resource
import numpy as np
from croupier.kernels.memory import keep_freed
asked = {asked} and keep_freed()
def use():
    for _ in range(8):
        held = [np.ones(400_000) for _ in range(4)]
        del held
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(asked: bool) -> int:
    """Pages that a process was handed while it used arrays of some megabytes again and again."""
    code = FAULTS.format(asked=asked)
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library cannot be asked")
def test_arrays_that_come_and_go_are_handed_no_new_pages() -> None:
    assert faults(asked=True) < 200
    assert faults(asked=False) > 1000


def test_a_library_that_cannot_be_asked_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert memory.keep_freed() is False
