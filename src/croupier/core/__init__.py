"""What every other room stands on: parts, updates, coins, canonical bytes, the wire, flows, views, files.

`part` is how a description becomes values, `update` what travels, `coins` where all randomness comes from. `canon` and
`wire` are the two encodings (for files and digests, and for messages). `flow`, `attempt` and `view` say how parties are
written, what one try at a round is, and what a party saw of it. `files` writes files that are whole or absent, and
`revive` turns results into plain values and back.

Nothing here knows a mechanism, a dataset or a network, and nothing but `files` writes to the disk.
"""
