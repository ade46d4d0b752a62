"""Small requests and reports between parties: a flat table of plain values, every field of exactly its type.

Whoever reads one must not trust it in anything: a number where bytes should be would make Python allocate that many.
`service.door`, `service.notice` and `service.recall` read with it what others send.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from croupier.core import canon
from croupier.errors import WireError

# So long is the longest that anybody needs: a report that names every client of a large federation.
MOST = 1 << 20


def read_request(data: bytes, **fields: type) -> tuple[Any, ...]:
    """The values of these fields, in this order. Raises: WireError for anything else."""
    if len(data) > MOST:
        raise WireError(f"a request of {len(data)} bytes; at most {MOST} can be")
    found = canon.load(data)
    if not isinstance(found, Mapping) or set(found) != set(fields):
        raise WireError("a request that has other fields than it should")
    for name, kind in fields.items():
        # A truth value is an int to Python, and not to us.
        if type(found[name]) is not kind:
            raise WireError(f"a request whose {name} is no {kind.__name__}")
    return tuple(found[name] for name in fields)


def read_names(found: tuple[Any, ...]) -> tuple[str, ...]:
    """A field that lists names. Raises: WireError when it lists anything else."""
    if not all(isinstance(name, str) for name in found):
        raise WireError("a request that lists what is no name")
    return found
