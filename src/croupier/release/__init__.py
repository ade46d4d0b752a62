"""Ideal functions: exactly what the server is to learn of the clients' rows, each a pure function of rows and coins.

`release` is the slot that a description fills under `protocol.release`: `rows` hides nothing, `shuffle` the order,
`sums` and `groups` all but sums, `bits` has three forms of a sum of residues in unary, `bucketed` (by `buckets`) hides
the order among clients of like budgets or all but their sums, and `scored` is RAIN's. `counted_ones` and `opened_sums`
say for audits what counts and weighted sums tell beyond the sum. Who computes a release, and how nobody else learns the
rows, is the placement's business; the law *realise* holds that every placement gives what the function here gives.
"""
