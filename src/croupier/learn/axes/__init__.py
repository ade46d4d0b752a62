"""Find the symmetries of a network by watching it run: which axes of its tensors may be permuted together.

`learn.assemble` calls `symmetry_of` where a protocol hides coordinates (Tazza, `encode.hidden`), and audits bring
permuted models back into order by `matching`. `permute_module`, `permute_optimizer` and `Permuted` are for users' own
experiments, on a network as it is. A rule, one permutation for each group of axes, comes from a secret of 32 bytes and
the number of a round: clients agree on the secret; an experiment takes `secrets.token_bytes(32)`, or draws a rule by
`symmetry.draw(Coins.from_seed(1), 0)`.

>>> import secrets, torch
>>> network, x = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 3)), torch.randn(5, 8)
>>> symmetry, before = symmetry_of(network, x), network(x)
>>> rule = symmetry.rule(secrets.token_bytes(32), 0)
>>> permute_module(network, symmetry, rule)
>>> bool(torch.allclose(network(symmetry.permute_inputs(x, rule)), before, atol=1e-5))
True
"""

from croupier.learn.axes.asked import symmetry_of
from croupier.learn.axes.trial import difference
from croupier.learn.axes.under import Permuted, permute_module, permute_optimizer

__all__ = ["Permuted", "difference", "permute_module", "permute_optimizer", "symmetry_of"]
