"""Attacks and exact numbers of leakage that only papers and benches use; audits mount those of `croupier.audit`."""
