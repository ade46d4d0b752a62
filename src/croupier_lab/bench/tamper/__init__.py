"""Ways to cheat, tried and counted: what a wrong message does to a sum or a vote.

`croupier bench tamper` runs it (`systems`). A trial plays a real round, changes one thing, and looks whether anybody
honest took a wrong result for right, which is an escape. Where a protocol checks, trials with the check switched off
must let cheats by, or the bench would prove nothing.
"""
