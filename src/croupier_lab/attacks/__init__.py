"""Attacks and exact numbers of leakage that only papers and benches use; audits mount those of `croupier.audit`.

Whatever a verdict of `croupier audit` rests on is in the product; what a paper mounts to print a number, and exact
formulas that need the true distribution, are here. Benches and papers call these functions directly, on views that they
made.
"""
