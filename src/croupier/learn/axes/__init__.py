"""Find the symmetries of a network by watching it run: which axes of its tensors may be permuted together.

`symmetry_of` finds them; `permute_module`, `permute_optimizer` and `Permuted` use them on a network as it is.
"""

from croupier.learn.axes.trace import symmetry_of
from croupier.learn.axes.trial import difference
from croupier.learn.axes.under import Permuted, permute_module, permute_optimizer

__all__ = ["Permuted", "difference", "permute_module", "permute_optimizer", "symmetry_of"]
