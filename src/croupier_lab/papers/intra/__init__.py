"""IntraShuffler, every coordinate shuffled among the clients of a tier, run again."""
