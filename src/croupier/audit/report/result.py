"""What every audit ends with: plain values, and a page of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from croupier.core.files import write_whole
from croupier.errors import option


@dataclass(frozen=True, repr=False)
class Reported(ABC):
    """Findings as plain values."""

    plain: Mapping[str, Any]

    def __repr__(self) -> str:
        about = [str(self.plain.get("name", "audit")), f"{self.plain.get('runs', 'some')} runs"]
        return f"{type(self).__name__}({': '.join(about)}; .plain has the numbers, .save(path) writes the report)"

    @abstractmethod
    def page(self) -> str:
        """The report, as one HTML document that needs nothing else."""

    def save(self, path: str | Path) -> Path:
        """Write the report. Raises: StoreError when that cannot be."""
        remedy = f"free space, or choose another {option('report', 'path')}"
        return write_whole(Path(path), self.page().encode(), remedy)
