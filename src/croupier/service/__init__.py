"""Parties as programs of their own: gRPC with mutual TLS between them, and a store that outlives a crash.

Each party is a process. The flows are the same generators that a simulation runs (`pipeline`, `place`). What is new
here is who drives them: a `Player` plays one seat, and writes every step down before it counts, so that a process that
is killed goes on where it was, with the same bytes. `croupier serve`, `croupier join`, `croupier up` and the Flower
adapter (`flower`) are built on it.
"""
