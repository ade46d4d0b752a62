"""The messages of two servers and their dealer: fields, what is signed, and what is dealt as letters.

Both servers (`server_flow`), clients (`client_flow`), the dealer (`pair`) and whoever reads several views (`pooled`)
share them, so that all mean the same bytes. `croupier bench rain` and `croupier bench tamper` build on them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Given, Letter
from croupier.core.wire import Field, Schema, attendance
from croupier.encode.signs import reference_fields
from croupier.kernels.field import Bytes
from croupier.mpc import dealer
from croupier.mpc.authentic import byte_tensor, bytes_of, check_schemas, toss_schemas, value_schema
from croupier.mpc.deal_shares import DealSpec
from croupier.mpc.dealer import ShuffleShare
from croupier.mpc.field import PRIME

SECOND = "second"
DEALER = "dealer"
SERVERS = ("server", SECOND)


def row_digest(row: Bytes) -> bytes:
    """The digest that stands for a hidden row."""
    return canon.digest(("row", row.tobytes()))


def upload_digest(body: Mapping[str, Tensor]) -> bytes:
    """What servers compare of a client's upload: all that it signed, its row and what it was handed."""
    return canon.digest(("upload", row_digest(body["row"].numpy()), bytes_of(body["handed"])))


def claim(given: Given, who: str, row: Bytes, handed: bytes) -> bytes:
    """What a client signs: this row, in this attempt and no other, made from what it was handed (a digest of it)."""
    return canon.digest(("up", given.run, given.round, given.attempt, who, row_digest(row), handed))


def outcome(root: bytes, sums: Tensor, total: Tensor) -> bytes:
    """What the servers sign at the end."""
    return canon.digest(("outcome", root, sums, total))


def levels(rows: int) -> list[int]:
    """How many pairs each level of the product tree over so many rows multiplies (`shuffle_check`)."""
    found = []
    while rows > 1:
        found.append(rows // 2)
        rows -= rows // 2
    return found


def schemas(deal: DealSpec, given: Given) -> Mapping[str, Schema]:
    """Every message of a round with the dealer's own shuffle; `scoring` and `cut_and_choose` add theirs."""
    count, row = deal.rows, (Field("row", "|u1", (deal.width,), spare=deal.spare),)
    rows = Schema((Field("rows", "|u1", (count, deal.width), spare=deal.spare),))
    digest, sign = Field("identity", "|u1", (32,)), Field("signature", "|u1", (64,))
    told = Schema((Field("seed", "|u1", (32,)),))
    found = {"seed": told, "w": rows, "q": rows, "late": Schema(reference_fields(deal.size))}
    if not deal.authentic:
        shares = Field("numbers", "<i4", (deal.rows * deal.size,))
        short = {name: Schema((Field("value", "<i4", (size,)),)) for name, size in (("hd", count), ("z", deal.size))}
        dealt = {"hand0": told, "hand1": Schema((*told.fields, shares))}
        return found | short | dealt | {"up": Schema(row), "here": Schema((attendance(given.roster),))}
    digests = Field("digests", "|u1", (count, 32))
    sent = Field("sent", "|u1", (count,), 1)
    return {
        **found, **_material_schemas(deal, told),
        "up": Schema((*row, sign, Field("handed", "|u1", (32,)))),
        "here": Schema((
            attendance(given.roster), digests, Field("commitment", "|u1", (32,)), Field("handed", "|u1", (32,)),
        )),
        "forward": Schema((
            sent, Field("rows", "|u1", ("sent", deal.width), spare=deal.spare),
            Field("signatures", "|u1", ("sent", 64)), Field("handed", "|u1", ("sent", 32)),
        )),
        "root": Schema((sign,)), "receipt": Schema((digest, digests, sign)),
        "key": Schema((Field("key", "|u1", (32,)),)),
        **({} if deal.check == "hash" else toss_schemas("e")),
        **{f"mul{at}": value_schema(4 * pairs, deal.over) for at, pairs in enumerate(levels(count))},
        "blind": value_schema(2, deal.over), "zero": value_schema(1, deal.over), **check_schemas("v0", deal.over),
        **check_schemas("v1", deal.over),
        "hd": value_schema(count, PRIME), **check_schemas("v2", PRIME),
        "z": value_schema(deal.size, PRIME), **check_schemas("v3", PRIME),
        "outcome": Schema((sign,)),
        "published": Schema((
            Field("sums", "<i8", (deal.size,)), Field("total", "<i8", (1,)), Field("signatures", "|u1", (2, 64)),
        )),
    }  # fmt: skip


def _material_schemas(deal: DealSpec, told: Schema) -> dict[str, Schema]:
    size, extras = deal.matrices * deal.rows * deal.size, (deal.extras, deal.over.words)
    bound = Field("bound", "|u1", (32,))
    numbers = (Field("numbers", "<i8", (size,)), Field("tags", "<i8", (size,)))
    dealt = (Field("values", "<i8", extras), Field("value_tags", "<i8", extras))
    return {"hand0": Schema((*told.fields, bound)), "hand1": Schema((*told.fields, bound, *numbers, *dealt))}


def letters(deal: DealSpec, given: Given, coins: Coins) -> Iterator[Letter]:
    """What the dealer sends: a seed to every client and to each server, and the rest to the second server."""
    for who, seed in zip(given.roster, dealer.seeds(deal, coins), strict=True):
        yield Letter(who, "seed", {"seed": byte_tensor(seed)})
    sides = [coins.child("hand", me).export() for me in (0, 1)]
    bounds = [dealer.bound_of(seed, me) for me, seed in enumerate(sides)]
    beside = [{"bound": byte_tensor(bounds[1 - me])} if deal.authentic else {} for me in (0, 1)]
    yield Letter(SERVERS[0], "hand0", {"seed": byte_tensor(sides[0]), **beside[0]})
    wide = np.int64 if deal.authentic else np.int32
    rest = {name: torch.from_numpy(array.view(wide)) for name, array in dealer.rest(deal, coins).items()}
    yield Letter(SERVERS[1], "hand1", {"seed": byte_tensor(sides[1]), **beside[1], **rest})


def share_from_letter(deal: DealSpec, given: Given, me: int, body: Mapping[str, Tensor]) -> ShuffleShare:
    """A server's material from the dealer's letter."""
    told = {name: values.numpy().view(np.uint64 if deal.authentic else np.uint32) for name, values in body.items()
            if name not in ("seed", "bound")}  # fmt: skip
    bound = bytes_of(body["bound"]) if deal.authentic else b""
    seed = bytes_of(body["seed"])
    bounds = (dealer.bound_of(seed, 0), bound) if me == 0 else (bound, dealer.bound_of(seed, 1))
    identity = canon.digest(("dealt", given.run, given.round, given.attempt, *bounds))
    return dealer.share_of_seed(seed, me, deal, identity, bound, told)
