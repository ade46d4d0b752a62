"""The laboratory beside the product: papers run again, and measurements that any machine can repeat.

It imports `croupier`, which imports no part of it: `croupier reproduce`, `croupier bench`, `croupier explain --table`
and `croupier compare --plot` load it by name when they are asked for.
"""
