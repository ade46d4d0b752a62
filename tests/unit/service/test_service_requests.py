"""Requests of strangers: every field of exactly its type, or a named refusal; never an allocation or a crash."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from croupier.core import canon
from croupier.errors import CroupierError, WireError
from croupier.service.notice import Notice
from croupier.service.requests import MOST, read_names, read_request


def test_a_request_is_read() -> None:
    assert read_request(canon.dump({"key": b"k", "hold": 1.5}), key=bytes, hold=float) == (b"k", 1.5)
    assert read_names(("a", "b")) == ("a", "b")


@pytest.mark.parametrize(
    "value",
    [
        {"key": 1 << 40}, {"key": 1 << 400}, {"key": True}, {"key": "text"}, {"key": None}, {}, (), 5, torch.ones(2),
        {"key": b"k", "more": 1},
    ],
)  # fmt: skip
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(WireError, match="a request"):
        read_request(canon.dump(value), key=bytes)


def test_a_long_request_is_refused_before_it_is_read() -> None:
    with pytest.raises(WireError, match="at most"):
        read_request(b"B" * (MOST + 1), key=bytes)


def test_a_list_of_other_things_than_names() -> None:
    with pytest.raises(WireError, match="no name"):
        read_names(("a", 1))


@pytest.mark.parametrize("value", [torch.ones(1), {"notice": torch.ones(1), "signature": b""}, {"notice": {}}, (1,)])
def test_what_is_no_notice(value: Any) -> None:
    with pytest.raises(CroupierError):
        Notice.read(canon.dump(value), bytes(32))
