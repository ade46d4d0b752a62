"""Where compiled loops are kept: beside their source, else in the user's cache, else nowhere; they run all the same.

And what they may not do: round a product and a sum as one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import croupier
from croupier.kernels import compiled

LOOP = """from croupier.kernels.compiled import njit

@njit(cache=True, nogil=True)
def twice(number):
    return 2 * number
"""
ASKED = "from croupier.kernels.twice import twice; print(twice(21))"


def copied(folder: Path, closed: bool) -> None:
    """The package with one small loop, its own folder open or closed."""
    kernels, source = folder / "croupier" / "kernels", Path(croupier.__file__).parent
    kernels.mkdir(parents=True)
    for name in ("__init__.py", "errors.py", "kernels/__init__.py", "kernels/compiled.py"):
        shutil.copy(source / name, folder / "croupier" / name)
    (kernels / "twice.py").write_text(LOOP, "utf-8")
    if closed:
        # A file where the folder should be cannot be written into by anybody, root included.
        (kernels / "__pycache__").touch()


@pytest.mark.parametrize("place", ["package", "home", "nowhere"])
def test_a_loop_runs_and_is_kept_where_that_can_be(tmp_path: Path, place: str) -> None:
    package, home = tmp_path / "package", tmp_path / "home"
    copied(package, closed=place != "package")
    env = {key: value for key, value in os.environ.items() if key not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    env |= {"PYTHONPATH": str(package), "HOME": os.devnull if place == "nowhere" else str(home)}
    done = subprocess.run([sys.executable, "-c", ASKED], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "42\n"
    assert {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("twice*.nbc")} == {place} - {"nowhere"}
    assert (compiled.CLOSED in done.stderr) == (place == "nowhere")


def test_every_loop_is_compiled_here() -> None:
    """One that takes numba's own decorator ends a process that can write nowhere."""
    folder = Path(compiled.__file__).parent
    own = {path.name for path in folder.glob("*.py") if "numba import njit" in path.read_text("utf-8")}
    assert own == set()


def test_a_product_and_a_sum_are_rounded_one_by_one() -> None:
    """Not as one, which some processors can: loops on floats would then differ from machine to machine."""

    @compiled.njit(cache=False)
    def added(a: Any, b: Any, c: Any, out: Any) -> None:
        for i in range(len(a)):
            out[i] = a[i] * b[i] + c[i]

    a, b, c = np.random.default_rng(1).standard_normal((3, 1000))
    out = np.empty(1000)
    added(a, b, c, out)
    product = a * b
    assert np.array_equal(out, product + c)
    # As one they would be others.
    each = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    assert not np.array_equal(out, [float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in each])
