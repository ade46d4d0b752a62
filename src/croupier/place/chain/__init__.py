"""A chain of servers that shuffle what they cannot read: a mix network.

`chain` is the placement; `form` what its six forms have in common, that is, six protocols by which servers mix:
`dealt`, `pairs`, `boxes`, `escrowed` (with `escrow_flow`), `trusted` and `proven`. `table` says what rows are made of
and among whom they move, `receipts` what clients are signed for. `bit_table`, `mix_record`, `proven_flow`,
`proven_cost` and `proven_words` belong to `proven`. The building blocks are in `mpc/`.
"""
