"""Rounds that really run: the loop, the driver, the post and its door, journals, stores, and whole described runs.

`loop` owns rounds and attempts, `local` moves messages and work between parties, `post` encodes, counts and checks
them. `journal`, `restart` and `store` make a run safe to kill at any moment; `shelf` does so for audits. `task`,
`federation`, `state` and `work` are the values in between, `failure` what is said when a round goes wrong. `job/` puts
a description into a folder and runs it to its end.

The one room that touches files, clocks and processes; protocols themselves are generators that do not.
"""
