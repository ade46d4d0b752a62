"""What papers print, as experiments and ledgers that anybody can run again."""

from collections.abc import Mapping

from croupier_lab.papers import (
    accuracy,
    cost,
    dp,
    intra,
    intra_cost,
    intra_figures,
    intra_profile,
    intra_recombine,
    rain,
    rain_cost,
    rain_rate,
    rain_shares,
    rns,
    rns_inversion,
    tazza_adaptive,
    tazza_augmented,
    tazza_clusters,
    tazza_confidential,
    tazza_cost,
    tazza_feasible,
    tazza_integrity,
    tazza_jigsaw,
    tazza_training,
)
from croupier_lab.papers.entry import Entry, Ledger, Trial

_RAIN = (*rain.TRIALS, *rain_shares.TRIALS, *rain_rate.TRIALS)
_INTRA = (*intra.TRIALS, *intra_recombine.TRIALS, *intra_profile.TRIALS, *intra_figures.TRIALS)
_TAZZA = (
    *tazza_integrity.TRIALS,
    *tazza_clusters.TRIALS,
    *tazza_confidential.TRIALS,
    *tazza_adaptive.TRIALS,
    *tazza_jigsaw.TRIALS,
    *tazza_feasible.TRIALS,
    *tazza_training.TRIALS,
    *tazza_augmented.TRIALS,
    *tazza_cost.TRIALS,
)
_TRIALS = (*accuracy.TRIALS, *dp.TRIALS, rns_inversion.FIGURE8, *_RAIN, *_INTRA, *_TAZZA)
_ALL: tuple[Entry | Ledger | Trial, ...] = (
    *rns.ENTRIES,
    *cost.LEDGERS,
    *rain_cost.LEDGERS,
    *intra_cost.LEDGERS,
    *_TRIALS,
)
ENTRIES: Mapping[str, Entry | Ledger | Trial] = {entry.name: entry for entry in _ALL}
