"""The command line as tests meet it."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from croupier.cli import main


class Shell:
    """Runs commands in this process: status, standard output, standard error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capture = monkeypatch, capsys
        # Output as wide as a pipe's, whatever window the tests run in.
        monkeypatch.delenv("COLUMNS", raising=False)
        # Lines on the way come by the clock: on a busy machine any command could say one.
        monkeypatch.setattr("croupier.cli.progress.LEAST", math.inf)

    def __call__(self, *words: str | Path) -> tuple[int, str, str]:
        self._patch.setattr(sys, "argv", ["croupier", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, said = self._capture.readouterr()
        return int(ended.value.code or 0), out, said

    def json(self, *words: str | Path) -> dict[str, Any]:
        code, out, said = self(*words, "--json")
        assert (code, said) == (0, "")
        found: dict[str, Any] = json.loads(out)
        return found

    def refused(self, *words: str | Path) -> str:
        code, out, said = self(*words)
        assert (code, out) == (2, "")
        assert said.startswith("croupier: error: ")
        assert said.count("\n") == 1
        return said.removeprefix("croupier: error: ").strip()
