"""IntraShuffler's three-stage attack on noise by tiers, as its tables measure it.

The product's questions `traits` and `linkage` (`croupier.audit.traits`) mount the same stages with one denoiser; here
are the others, the clusters, the recombination of shuffled values and those measures of the paper's tables and figures
that audits do not show. `croupier_lab.papers` runs them.
"""
