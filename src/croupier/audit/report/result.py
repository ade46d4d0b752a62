"""What every audit ends with: plain values, and a page of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from croupier.errors import StoreError


@dataclass(frozen=True)
class Reported(ABC):
    """Findings as plain values."""

    plain: Mapping[str, Any]

    @abstractmethod
    def page(self) -> str:
        """The report, as one HTML document that needs nothing else."""

    def save(self, path: str | Path) -> Path:
        """Write the report. Raises: StoreError when that cannot be."""
        try:
            Path(path).write_text(self.page(), encoding="utf-8")
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror}); choose another --report") from None
        return Path(path)
