"""What the source-inference paper's three levels of trust cost a client and a hop, ours beside the printed form.

Bytes are those of real messages' schemas, header not counted. The printed form puts every bit in an onion of its own,
which the paper's 1.81 leaves out (`printed_mixnet`).
"""

from __future__ import annotations

from typing import Any

from croupier.core.flow import Given
from croupier.core.update import Layout, Slice
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


def _rows(scale: Scale) -> list[dict[str, Any]]:
    size = MixSize(params=COUNTS[scale], clients=CLIENTS, servers=SERVERS, digits=DIGITS)
    found = pipelines(size)
    layout = Layout((Slice("w", (size.params,)),))
    roster = tuple(f"c{number:02}" for number in range(CLIENTS))
    given = Given("server", bytes(16), 0, 0, roster, CLIENTS, layout)
    floats = 4 * size.params
    rows = []
    for form, who in TRUSTED.items():
        place = found[form].place
        if not isinstance(place, Chain):
            raise AssertionError("every level is a chain here")
        kinds = place.schemas(found[form], given)
        up = sum(kinds[kind].most_bytes for kind in ("up", "box", "share") if kind in kinds)
        seeds = len(place.form.holders) - 1 if "seed" in kinds else 0
        hop = next(kinds[kind].most_bytes for kind in ("hop", "hop1", "mixed") if kind in kinds)
        rows.append(
            {"level": "full" if form == "full" else "semi-honest", "form": form, "servers": len(place.names),
             "trusted": who, "client": round((up + 32 * seeds) / floats, 2), "hop": round(hop / floats / CLIENTS, 2),
             "paper": SAID[form]}
        )  # fmt: skip
    printed = expansion(PRINTED_BITS, SERVERS)
    rows += [
        {"level": level, "form": "printed: an onion a bit", "servers": SERVERS, "trusted": "one mix server of three",
         "client": printed, "hop": printed, "paper": "1.81"}
        for level in ("semi-honest", "malicious")
    ]  # fmt: skip
    return rows


FIGURES = (
    Figure(
        "rns/mixnets",
        f"{PAPER}, Sections 4 and 7, Algorithms 8 and 9",
        "what a client and a hop send by level of trust, over 32-bit floats, 10 clients",
        "A client's and a hop's bytes a client over those of 32-bit floats; five digits, three servers. The paper's "
        "numbers leave out what encrypting every bit by itself costs. Its third level, malicious servers, is not built "
        "here: the last line is what the printed onions alone would send, without proofs.",
        counted(_rows),
    ),
)
