"""The laboratory beside the product: papers run again, and measurements that any machine can repeat.

It imports `croupier` and is never imported by it; `croupier reproduce` and `croupier bench` load it when asked.
"""
