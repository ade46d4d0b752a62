"""Find the symmetries of a network by watching it run: which axes of its tensors may be permuted together."""

from croupier.learn.axes.trace import difference, symmetry_of

__all__ = ["difference", "symmetry_of"]
