"""A chain of servers that shuffle what they cannot read: a mix network.

`chain` is the placement; `table` says what rows are made of and among whom they move; `dealt`, `pairs`, `boxes` and
`trusted` are its forms; `receipts` what clients are signed for; `words` what each form withstands.
"""
