"""Placements: which parties compute a release, what they send each other, and what each of them sees.

`placement` is the slot that a description fills under `protocol.place`: `direct` (nobody in between), `relay` (one
trusted party), `servers` (several, of which one honest one suffices), `masks` (nobody, and nobody may be missing),
`two_servers/` (a pair and a dealer, for RAIN) and `chain/` (mix servers, one after the other). `secrets` are the keys
that parties hold from before the first round, `labels` is what everybody can know of noise, `witness` what a party
could tell others.

A placement is three sub-flows, written as generators without input or output: the client's, those of its own parties,
and the server's. The law *realise* holds that together they give what the release's function gives.
"""
