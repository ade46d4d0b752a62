"""Measurements of what outputs give away, and of how far the audit's own numbers can be trusted.

Of the commands of `croupier bench`, `reveal`, `opened`, `disaggregate`, `clusters` and `permutation` measure protocols;
`coverage` and `accuse` measure the audit itself: whether its intervals cover, and how often it accuses where nothing
leaks.
"""
