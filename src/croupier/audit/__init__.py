"""Attacks on what parties really see; called, as `croupier.audit(...)`, it audits a description.

The folder and the function share a name, so the folder itself can be called.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A module that can be called: it passes the call on to `audit.described.audit`, imported only then."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return import_module("croupier.audit.described").audit(*args, **options)


sys.modules[__name__].__class__ = _Room
