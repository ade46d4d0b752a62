"""What the source-inference paper's three levels of trust cost a client and a hop, ours beside the printed form.

Bytes are those of real messages' schemas, header not counted. The printed form puts every bit in an onion of its own,
which the paper's 1.81 leaves out (`printed_mixnet`).
"""

from __future__ import annotations

from typing import Any

from croupier.core.flow import Given
from croupier.core.update import Layout, Slice
from croupier.pipeline import Pipeline
from croupier.place.chain.chain import Chain
from croupier_lab.bench.speed.mix_chain import MixSize, pipelines
from croupier_lab.papers.rns.cost import COUNTS, PAPER, UNPRINTED
from croupier_lab.papers.rns.printed_mixnet import expansion
from croupier_lab.papers.shared.figure import Figure, Scale, counted

CLIENTS, DIGITS, SERVERS = 10, 5, 3
# The least sum of moduli that is lossless for them; the 58 bits behind the paper's 1.81 are too few.
PRINTED_BITS = 64
SAID = {"full": "1.03 (RLE)", "dealer": "1.81", "pairs": "1.81", "onion": UNPRINTED}
TRUSTED = {
    "full": "one mix server, with every update",
    "dealer": "one mix server of three, and a dealer that sides with none",
    "pairs": "two mix servers of three",
    "onion": "one mix server of three; whole models only",
}
OWN = {
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
    up = sum(kinds[kind].most_bytes for kind in ("up", "box", "share") if kind in kinds)
    seeds = len(place.form.holders) - 1 if "seed" in kinds else 0
    hop = next(kinds[kind].most_bytes for kind in ("hop", "hop1", "mixed") if kind in kinds)
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
    for form, who in OWN.items():
        place = Chain(shuffle="onion" if form == "onion" else "dealer", servers=CLIENTS, clients_mix=True)
        told = _row(Pipeline.parse({**found[form].plain(), "place": place.plain()}), size.params)
        level = "semi-honest, every client a server (S.5)"
        rows.append({"level": level, "form": form, "trusted": who, **told, "paper": SAID[form], "why": WHY["own"]})
    for level, servers, why in (
        ("semi-honest", SERVERS, "printed"), ("malicious", SERVERS, "printed"),
        ("semi-honest, every client a server (S.5)", CLIENTS, "printed own"),
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
        "every client runs one. The paper's numbers leave out what encrypting every bit by itself costs. Its third "
        "level, malicious servers, is here what the printed onions alone would send, without proofs.",
        counted(_rows),
    ),
)
