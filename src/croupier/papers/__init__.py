"""What papers print, as experiments and ledgers that anybody can run again."""

from collections.abc import Mapping

from croupier.papers import accuracy, cost, dp, rns, rns_inversion
from croupier.papers.entry import Entry, Ledger, Trial

ENTRIES: Mapping[str, Entry | Ledger | Trial] = {
    entry.name: entry for entry in (*rns.ENTRIES, *cost.LEDGERS, *accuracy.TRIALS, *dp.TRIALS, rns_inversion.FIGURE8)
}
