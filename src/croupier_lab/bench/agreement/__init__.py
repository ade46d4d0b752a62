"""Agreement on a rule under random faults: what goes wrong, what it costs, what is lost.

`croupier bench agree` runs `faults_and_cost`. The schedules and parties here are faulty on purpose; honest clients run
the flows of `croupier.agree` unchanged.
"""
