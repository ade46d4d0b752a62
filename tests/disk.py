"""A disk that is full for one file alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from croupier.core import files


@contextmanager
def full_for(name: str) -> Iterator[None]:
    """While it lasts, there is no space for the draft of a file by that name."""
    true = files.open_draft

    def opened(draft: Path, mode: int = 0o666) -> IO[bytes]:
        return Path("/dev/full").open("wb") if draft.name == f"{name}{files.DRAFT}" else true(draft, mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "open_draft", opened)
        yield
