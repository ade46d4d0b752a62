"""When a loop is done plainly: few numbers always, some more until the compiler is loaded or has become worth it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from croupier.kernels import few as module
from croupier.kernels.few import AT_FIRST, FEW, few


def test_the_fewest_always_and_some_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_done", 0)
    assert few(FEW - 1)
    assert not few(FEW)
    monkeypatch.delitem(sys.modules, "numba")
    assert few(AT_FIRST // 2)
    assert few(AT_FIRST // 2)
    assert not few(FEW)
    assert few(FEW - 1)


def test_light_numbers_count_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_done", 0)
    assert not few(FEW, 100)
    monkeypatch.delitem(sys.modules, "numba")
    assert few(50 * AT_FIRST, 100)
    assert few(50 * AT_FIRST, 100)
    assert not few(100 * FEW, 100)
    # The same for all that is counted: heavier ones come too late now, too.
    assert not few(FEW)
    assert few(FEW - 1, 100)


def test_a_process_for_one_small_update_loads_no_compiler_and_gives_the_same() -> None:
    program = (
        "import sys, numpy as np; from croupier.kernels import packed\n{first}\n"
        "data = packed.packed(np.arange(3000), 21); print('numba' in sys.modules, data.tobytes().hex())"
    )
    said = {
        first: subprocess.run(
            [sys.executable, "-c", program.format(first=first)], capture_output=True, text=True, check=True
        ).stdout.split()
        for first in ("", "import numba")
    }
    assert [loaded for loaded, _ in said.values()] == ["False", "True"]
    assert len({data for _, data in said.values()}) == 1
