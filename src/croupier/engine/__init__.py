"""Rounds that really run: the loop, the driver, the post and its door, journals, stores, and whole described runs.

`loop` plays rounds and attempts, `local` moves messages and work between parties, `post` encodes, counts and checks
messages. `journal`, `restart` and `store` make a run safe to kill at any moment, and `shelf` does so for an audit.
`task`, `federation`, `state` and `work` hold the values in between, and `failure` says why a round went wrong. `job/`
puts a description into a folder and runs it to its end.

The parties of a protocol are generators that touch neither files nor clocks. What simulated runs and audits need of
these is here; deployed parties have `service` for it.
"""
