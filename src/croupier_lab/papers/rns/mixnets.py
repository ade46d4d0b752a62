"""What RNS's three levels of trust cost a client and a hop, ours beside the printed form.

Bytes are those of real messages' schemas, headers not counted. The printed form puts every bit in an onion of its own,
which the paper's factor of 1.81 leaves out (`printed_mixnet`). `croupier reproduce rns/mixnets` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from croupier.core.flow import Given
from croupier.core.update import Layout, Slice
from croupier.pipeline import Pipeline
from croupier.place.chain.chain import Chain
from croupier_lab.bench.speed.mix_chain import MixSize, pipelines
from croupier_lab.papers.rns.cost import COUNTS, PAPER, UNPRINTED
from croupier_lab.papers.rns.printed_mixnet import expansion
from croupier_lab.papers.shared.figure import Figure, Scale, counted

# The setting of all rows.
CLIENTS, DIGITS, SERVERS = 10, 5, 3
# The least sum of moduli that is lossless for them; the 58 bits behind the paper's 1.81 are too few.
PRINTED_BITS = 64
OURS = "semi-honest, every client a server (S.5)"
# By form: the paper's factor, whom one must trust, and why ours differs.
SAID = {"full": "1.03 (RLE)", "dealer": "1.81", "pairs": "1.81", "onion": UNPRINTED, "proofs": "1.81 and proofs"}
TRUSTED = {
    "full": "one mix server, with every update",
    "dealer": "one mix server of three, and a dealer that sides with none",
    "pairs": "two mix servers of three",
    "onion": "one mix server of three; whole models only",
}
OWN: Mapping[Literal["dealer", "onion"], str] = {
    "dealer": "the client's own mix server, and a dealer that sides with none",
    "onion": "the client's own mix server; whole models only",
}
WHY = {
    "full": "counts of ones in binary, 24 bits for moduli that are lossless; no set of moduli gives the paper's 33",
    "dealer": "57 bits as we send them, and a seed for each other server; the paper's 58 are not lossless, and leave "
    "out what hiding each bit from the servers costs: shares need nothing more",
    "pairs": "as above",
    "onion": "one number of 21 bits and a box of 80 bytes a server; whole models, which the paper's own Algorithm 2 "
    "un-shuffles",
    "proofs": "a bit is a ciphertext of 64 bytes and a longer proof that it is a bit, 294 bytes in all; the paper "
    "names no proofs, and says of them that they cost more",
    "own": "as with three servers: a client sends its row once and seeds to the others; its server takes in and sends "
    "on every client's row (hop). The paper's S.5 holds while the dealer is nobody's, or, for whole models, as said",
    "printed": "the paper's 1.81 counts bits without their onions; 145 bytes a bit at three servers",
    "printed own": "481 bytes a bit at ten servers; the paper says that all but one may drop out, and none can",
}


def _row(pipeline: Pipeline, params: int) -> dict[str, Any]:
    """What a client and a hop send, from messages' schemas."""
    place, layout = pipeline.place, Layout((Slice("w", (params,)),))
    if not isinstance(place, Chain):
        raise AssertionError("every level is a chain here")
    given = Given("server", bytes(16), 0, 0, tuple(f"c{number:02}" for number in range(CLIENTS)), CLIENTS, layout)
    kinds, floats = place.schemas(pipeline, given), 4 * params
    up = sum(kinds[kind].most_bytes for kind in ("up", "box", "share", "bits") if kind in kinds)
    seeds = len(place.form.holders) - 1 if "seed" in kinds else 0
    hop = next(kinds[kind].most_bytes for kind in ("hop", "hop1", "by-mix1", "mixed") if kind in kinds)
    return {
        "servers": len(place.names), "client": round((up + 32 * seeds) / floats, 2),
        "hop": round(hop / floats / CLIENTS, 2),
    }  # fmt: skip


def _rows(scale: Scale) -> list[dict[str, Any]]:
    size = MixSize(params=COUNTS[scale], clients=CLIENTS, servers=SERVERS, digits=DIGITS)
    found, rows = pipelines(size), []
    for form, who in TRUSTED.items():
        level = "full" if form == "full" else "semi-honest"
        told = _row(found[form], size.params)
        rows.append({"level": level, "form": form, "trusted": who, **told, "paper": SAID[form], "why": WHY[form]})
    for level, form, who, why, place in (
        *((OURS, form, OWN[form], "own", Chain(shuffle=form, servers=CLIENTS, clients_mix=True)) for form in OWN),
        ("malicious", "proofs", "one mix server of three", "proofs", Chain(trust="malicious", servers=SERVERS)),
        ("malicious, every client a server (S.5)", "proofs", "the client's own mix server", "proofs",
         Chain(trust="malicious", servers=CLIENTS, clients_mix=True)),
    ):  # fmt: skip
        base = found["onion" if form == "onion" else "dealer"]
        told = _row(Pipeline.parse({**base.plain(), "place": place.plain()}), size.params)
        rows.append({"level": level, "form": form, "trusted": who, **told, "paper": SAID[form], "why": WHY[why]})
    for level, servers, why in (
        ("semi-honest", SERVERS, "printed"), ("malicious", SERVERS, "printed"), (OURS, CLIENTS, "printed own"),
    ):  # fmt: skip
        grown, who = expansion(PRINTED_BITS, servers), "one mix server"
        told = {"servers": servers, "client": grown, "hop": grown}
        form = "printed: an onion a bit"
        rows.append({"level": level, "form": form, "trusted": who, **told, "paper": "1.81", "why": WHY[why]})
    return rows


FIGURES = (
    Figure(
        "rns/mixnets",
        f"{PAPER}, Sections 4 and 7, Algorithms 8 and 9, S.5",
        "what a client and a hop send by level of trust, over 32-bit floats, 10 clients",
        "A client's and a hop's bytes a client over those of 32-bit floats; five digits; three servers, or ten where "
        "every client runs one. The paper's numbers leave out what encrypting every bit by itself costs. At its third "
        "level, malicious servers, 'printed' is what the onions alone would send, without the proofs that they need, "
        "and 'proofs' is ours, with all of them.",
        counted(_rows),
    ),
)
