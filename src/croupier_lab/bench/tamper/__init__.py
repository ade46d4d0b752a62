"""Every way to cheat, tried and counted: what a wrong message does to a sum or a vote."""
