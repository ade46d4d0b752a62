"""What attacks on source and membership work with: knowledge, what was read in a view, and a network to try weights in.

Many attacks look at the same view with the same models, so outputs of a model on records are computed once and kept
here. `audit.attacks.source` makes an `AttackContext` from what it is sent and hands it to each attack;
`audit.unshuffle` and `audit.membership` hold those attacks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from croupier.audit.knowledge import Knowledge, Sample
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.encode.residues import Counted
from croupier.errors import SpecError, Unsuited
from croupier.learn.ends import Head, find_head
from croupier.learn.flat import FlatNet

# What an attack on a context gives: a score for each client and record, or for each suspect.
Attack = Callable[["AttackContext", Coins], Tensor]
# What enters a network's last layer, where it can be listened to; its logits; the inputs.
Ran = tuple[Tensor | None, Tensor, Tensor]
_BATCH = 1024


@dataclass(frozen=True)
class AttackContext:
    """What one attack gets: the adversary's knowledge, and what it read in a view (`seen`), or nothing.

    Outputs of a model on inputs are computed once for all attacks on a view (`ran`, by the model's digest). `study`
    holds what follows from knowledge, drawn from the coins `quiet`, so that it is the same whichever view comes first,
    and gradients at the model last handed out (`audit.membership`). `counts` are counted ones, which tell more than
    `seen`, decoded from them; `carried` keeps candidate values made of them. `start` is the model that was handed out,
    where it is known.
    """

    knowledge: Knowledge
    seen: Gathered | None
    net: FlatNet
    quiet: Coins
    study: dict[str, Any] = field(default_factory=dict)
    ran: dict[tuple[bytes, int], Ran] = field(default_factory=dict)
    digests: dict[tuple[int, int], tuple[bytes, Tensor]] = field(default_factory=dict)
    counts: Counted | None = None
    start: Tensor | None = None
    carried: list[Tensor] = field(default_factory=list)

    def with_view(
        self, seen: Gathered | None, counts: Counted | None = None, start: Tensor | None = None
    ) -> AttackContext:
        """The same knowledge before another view."""
        return AttackContext(self.knowledge, seen, self.net, self.quiet, self.study, counts=counts, start=start)

    def with_shadows(self, shadows: tuple[Sample, ...]) -> AttackContext:
        """The same view with other shadow sets."""
        return replace(self, knowledge=replace(self.knowledge, shadows=shadows))

    @cached_property
    def joint(self) -> Tensor:
        """The mean of all updates, which every release gives away. Raises: SpecError without rows or sums."""
        if self.seen is None:
            raise SpecError("this attack needs a view")
        if self.seen.rows is not None:
            return self.seen.rows.double().mean(0).float()
        if self.seen.sums is None or self.seen.weights is None:
            raise SpecError("this attack needs rows or sums")
        return (self.seen.sums.double() / float(self.seen.weights.sum())).float()

    @cached_property
    def ending(self) -> Head | Unsuited:
        """The linear layer that gives the logits, found by running the network; or why there is none."""
        try:
            return find_head(self.net.module, self.knowledge.records[0])
        except Unsuited as error:
            return error

    @property
    def head(self) -> Head:
        """The linear layer that gives the logits. Raises: Unsuited where there is none, or quantities are learnt."""
        if not self.knowledge.classes:
            raise Unsuited("it tells clients' last layers apart by classes, and here quantities are learnt")
        if isinstance(self.ending, Unsuited):
            raise Unsuited(f"this attack works on a linear last layer, and the network has none: {self.ending}")
        return self.ending

    @cached_property
    def places(self) -> Tensor:
        """Where the last layer lies in the vector: its weights, class by class, then its biases. Raises: Unsuited."""
        weights, biases = self.head.places(self.net.layout)
        return torch.cat([weights.flatten(), biases])

    @cached_property
    def biases(self) -> Tensor | None:
        """Where the last layer's biases lie in the vector; None where it has none, or is not linear."""
        if isinstance(self.ending, Unsuited) or self.ending.bias is None:
            return None
        return self.ending.places(self.net.layout)[1]

    def outputs(self, vector: Tensor, inputs: Tensor) -> Tensor:
        """Logits under these weights."""
        return self._run(vector, inputs)[1]

    def hidden(self, vector: Tensor, inputs: Tensor) -> Tensor:
        """What enters the last layer under these weights. Raises: Unsuited where that is not linear."""
        head = self.head
        found = self._run(vector, inputs)[0]
        if found is None:
            found = self._read(head, vector, inputs)
            self.ran[self._digest(vector), id(inputs)] = (found, *self._run(vector, inputs)[1:])
        return found

    def _run(self, vector: Tensor, inputs: Tensor) -> Ran:
        key = (self._digest(vector), id(inputs))
        if key not in self.ran:
            # The inputs are kept beside their outputs, so that their id stays theirs.
            self.ran[key] = (*self._forward(vector, inputs), inputs)
        return self.ran[key]

    def _digest(self, vector: Tensor) -> bytes:
        """What the vector holds, as a digest: rows that were copied about are still the same rows."""
        place = (vector.data_ptr(), len(vector))
        if place not in self.digests:
            # Kept beside its digest, so that its place stays its own.
            self.digests[place] = hashlib.blake2b(canon.tensor_bytes(vector)).digest(), vector
        return self.digests[place][0]

    def _forward(self, vector: Tensor, inputs: Tensor) -> tuple[Tensor | None, Tensor]:
        """What enters the last layer, where it can be listened to, and the logits."""
        module, caught, hooks = self._loaded(vector), list[Tensor](), []
        layer = None if isinstance(self.ending, Unsuited) else self.ending.layer
        if layer is not None:
            last = module.get_submodule(layer)
            hooks.append(last.register_forward_pre_hook(lambda _, args: caught.append(args[0].cpu())))
        device = self.net.weights.device
        with torch.no_grad():
            outputs = [module(part.to(device)).cpu() for part in torch.split(inputs, _BATCH)]
        for hook in hooks:
            hook.remove()
        return torch.cat(caught) if caught else None, torch.cat(outputs)

    def _read(self, head: Head, vector: Tensor, inputs: Tensor) -> Tensor:
        """What enters a last layer that is no module of its own: read at the outputs."""
        module, device = self._loaded(vector), self.net.weights.device
        return torch.cat([head.features(module, part.to(device)).cpu() for part in torch.split(inputs, _BATCH)])

    def _loaded(self, vector: Tensor) -> nn.Module:
        """The network with these weights; `eval` is called only if it must be, as it may take longer than a run."""
        self.net.load(vector)
        return self.net.module.eval() if self.net.module.training else self.net.module
