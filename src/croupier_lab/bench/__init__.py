"""Measurements that any machine can repeat: seconds and bytes, what outputs give away, faults, and ways to cheat.

Each bench is a module with a size, `measure` and `show`; `croupier_lab/cli/bench.py` lists them and makes their
options. A number always stands beside a rival's that was measured in the same run, and a bench of a guarantee has a
control that must fail.
"""
