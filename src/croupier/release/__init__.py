"""Ideal functions: exactly what the server is to learn of the clients' rows, each a pure function of rows and coins.

`release` is the slot that a description fills under `protocol.release`: `rows` hides nothing, `shuffle` the order,
`sums`, `groups` and `bits` all but sums, `bucketed` (by `buckets`) the order among clients of like budgets, and
`scored` is RAIN's. Who computes a release, and how nobody else learns the rows, is the placement's business; the law
*realise* holds that every placement gives what the function here gives.
"""
