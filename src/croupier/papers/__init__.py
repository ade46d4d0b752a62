"""What papers print, as experiments and ledgers that anybody can run again."""

from collections.abc import Mapping

from croupier.papers import cost, rns
from croupier.papers.entry import Entry, Ledger

ENTRIES: Mapping[str, Entry | Ledger] = {entry.name: entry for entry in (*rns.ENTRIES, *cost.LEDGERS)}
