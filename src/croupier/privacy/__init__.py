"""Local noise, and what may honestly be said of it: mechanisms, guarantees, composition, ledgers and plans.

`local` is the slot that a description fills under `protocol.privacy`; `gaussian`, `response` and `tiers` are what it
can hold besides no noise. `gdp`, `losses` and `renyi` turn noise into epsilon, `ledger` adds releases up, `central` and
`amplify` say what sums and shuffles add, and `plan` does it all before a run.

What is claimed is computed, and where nothing can be claimed the reason is said. Epsilons are rounded up and noise is
rounded up, because a rounded guarantee must still hold. scipy takes as long to import as a small run, so it is imported
where something is computed with it.
"""
