"""Measurements that any machine can repeat: seconds and bytes, what outputs give away, faults, and ways to cheat.

Each bench is a module with a size, `measure` and `show`; `croupier_lab/cli/bench.py` lists them and makes their
options. Where there is a rival or a plain copy to compare with, it is measured in the same run. A bench of a guarantee
has a control that must fail where one can be made.
"""
