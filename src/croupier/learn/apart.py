"""Whether DP-SGD holds for a network, found by trying: a record's gradient must not depend on who is beside it.

Noise is meant for one record's clipped gradient. A layer that looks across its batch lets one record move everybody's,
and a buffer that training changes would leave without any noise. Both are tried for before a run starts, in training
mode, on one client's records and made-up ones, in batches of several sizes: what fails is refused by its name. They
are tried at the first weights and at others: a path that mixes records may be closed by zeros until training opens it.

`learn.train` calls `check_apart` whenever it makes a `Learner` whose fit is private. Trying shows no more than it
tries. With `vmap` each record is computed alone whatever a layer does; with `opacus` a layer that mixes records in
other cases than these would pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.errors import CroupierError, SpecError
from croupier.learn.data import Records
from croupier.learn.dp_fit import Private
from croupier.learn.flat import FlatNet, loss_of, train_mode
from croupier.learn.models.layers import Dropout, draw_from
from croupier.learn.private import LAYERS, ROOM, clipping, gradients, moved, same

# Batches that are tried besides the size that training expects, which is tried up to the last number.
SIZES, LARGEST = (2, 5), 64
# Made-up neighbours reach this far: what is mixed in a little shows by a neighbour that is large.
FAR = 1e3
# Other weights that are tried, and how far they are from the first: a share of their mean size, and more for zeros.
OPENED, SHARE, LEAST = 4, 0.5, 0.1
# Differences beyond these shares are no rounding: of 64-bit numbers, and of 32-bit ones where a model takes no others.
EXACT, COARSE = 1e-7, 1e-2
_DROPS = (Dropout, nn.modules.dropout._DropoutNd)
# These drop values inside.
_HOLDS = (nn.RNNBase, nn.MultiheadAttention)


def check_apart(module: nn.Module, goal: str, fit: Private, records: Records, device: str = "cpu") -> None:
    """Raises: SpecError when DP-SGD would not hold, naming the layer or buffer, or the engine cannot take the model."""
    for start in range(1 + OPENED):
        made = partial(_Trial.of, module, goal, fit, records, device, start)
        # In 64-bit numbers where the model and the engine take them: rounding is then no excuse.
        trial = made(True)
        trial = trial if trial.runs(trial._outputs) else made(False)
        if start > 1:
            # What mixes records shows in what is said of them: gradients, which cost more, are tried at two starts.
            with _quiet(trial.net.module, True):
                trial.check_outputs(True)
        else:
            _check_whole(trial, made)


def _check_whole(trial: _Trial, made: Callable[[bool], _Trial]) -> None:
    trial.check_state()
    trial = trial if trial.runs(trial._rows) else made(False)
    # Masks of dropout are a record's own: without them alone and in a batch can be compared number by number.
    for quiet in (False, True) if _drops(trial.net.module) else (True,):
        with _quiet(trial.net.module, quiet):
            trial.check_outputs(quiet)
            trial.check_gradients(quiet)


@dataclass(frozen=True, eq=False)
class _Trial:
    """A copy of a network, and records to try it with; the first is compared in different company."""

    net: FlatNet
    goal: str
    fit: Private
    inputs: Tensor
    targets: Tensor
    others: Tensor
    near: float

    @classmethod
    def of(
        cls, module: nn.Module, goal: str, fit: Private, records: Records, device: str, start: int, wide: bool
    ) -> _Trial:
        """With a copy of the network, at its own weights where `start` is 0; `wide`: in 64-bit numbers."""
        net = FlatNet(module, device)
        net.load(_weights(module, start).to(device))
        kind = torch.float64 if wide else torch.float32
        train_mode(net.module.to(kind))
        size = max(*SIZES, min(fit.batch, LARGEST))
        inputs, targets = records.batch(torch.arange(size, device=device) % len(records))
        cast = [x.to(kind) if x.is_floating_point() else x for x in (inputs, targets, _other_records(inputs))]
        return cls(net, goal, fit, cast[0], cast[1], cast[2], EXACT if wide else COARSE)

    def runs(self, how: Callable[[Tensor], Tensor]) -> bool:
        """Whether two records can be computed at all."""
        try:
            how(self.inputs[:2])
        except (RuntimeError, TypeError, ValueError, SpecError):
            return False
        return True

    @property
    def named_fit(self) -> str:
        return f"task.fit = {self.fit.use!r}"

    def check_state(self) -> None:
        """Raises: SpecError when training changes what no noise is added to."""
        module = self.net.module
        before = {name: value.detach().clone() for name, value in _named(module)}
        for batch in (self.inputs, self._beside(self.inputs[:1], self.others[1:])):
            self._loss(batch).backward()  # type: ignore[no-untyped-call]
            for name, value in _named(module):
                if not same(before[name], value):
                    raise SpecError(f"{self.named_fit}: {moved(name, name in dict(module.named_parameters()))}")
        for parameter in module.parameters():
            parameter.grad = None

    def check_outputs(self, quiet: bool) -> None:
        """Raises: SpecError when what the network says of a record depends on the others."""
        one = self.inputs[:1]
        for size in sorted({*SIZES, len(self.inputs)}):
            mine, theirs = (self._beside(one, rest[1:size]) for rest in (self.inputs, self.others))
            if not self._near(self._outputs(mine)[0], self._outputs(theirs)[0]):
                raise SpecError(self._mixes(self._culprit(mine, theirs)))
            if quiet and not self._random and not self._near(self._outputs(one)[0], self._outputs(mine)[0]):
                raise SpecError(self._mixes(self._culprit(one, mine)))

    def check_gradients(self, quiet: bool) -> None:
        """Raises: SpecError when a record's clipped gradient depends on its batch, or the engine cannot compute it."""
        try:
            self._compare_neighbours()
            if quiet:
                self._compare_alone()
        except CroupierError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            other = "opacus" if self.fit.engine == "vmap" else "vmap"
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise SpecError(
                f"{self.named_fit}: task.fit.engine = {self.fit.engine!r} gives no gradient of single records for this "
                f"model ({why}); try task.fit.engine = {other!r}"
            ) from error

    def _compare_neighbours(self) -> None:
        one, most = self.inputs[:1], max(2, ROOM // max(1, self.net.size))
        for size in sorted({min(size, most) for size in (*SIZES, len(self.inputs))}):
            mine, theirs = (self._beside(one, rest[1:size]) for rest in (self.inputs, self.others))
            if not self._alike(*(self._clipped(self._rows(batch)[0]) for batch in (mine, theirs))):
                raise SpecError(self._mixes(f"the model's gradient ({size} records in a batch)"))

    def _compare_alone(self) -> None:
        """A batch's clipped sum against those of its records alone, where a record's draws do not differ by batch."""
        if self._random:
            if self.fit.engine == "opacus":
                raise SpecError(
                    f"{self.named_fit}: the model draws random numbers by other means than dropout, so that a record's "
                    "gradient alone and in a batch cannot be compared; use nn.Dropout, or task.fit.engine = 'vmap'"
                )
            return
        batch, targets = self._beside(self.inputs[:2], self.others[2 : SIZES[-1]]), self.targets[: SIZES[-1]]
        with clipping(self.net, self.goal, self.fit) as sums:
            whole = sums(batch, targets)
            alone = [sums(batch[at : at + 1], targets[at : at + 1]) for at in range(len(batch))]
            again = sums(batch, targets)
        if not (self._alike(whole, torch.stack(alone).sum(0)) and self._alike(whole, again)):
            raise SpecError(self._mixes("the model's gradient"))

    def _mixes(self, who: str) -> str:
        return (
            f"{self.named_fit}: {who} depends on the other records of its batch, or on how many they are: one record "
            f"could move the sum by more than clip = {self.fit.clip:g}, which the noise is for; {LAYERS}"
        )

    def _culprit(self, one: Tensor, other: Tensor) -> str:
        """The first layer whose answer for the first record differs."""
        seen = [self._heard(batch) for batch in (one, other)]
        for name, kind, out in seen[0]:
            twin = next((found for known, _, found in seen[1] if known == name), None)
            if twin is not None and out.shape == twin.shape and not self._near(out, twin):
                return f"what the model's {name} ({kind}) says of a record"
        return f"what the model itself ({type(self.net.module).__name__}) says of a record"

    def _heard(self, batch: Tensor) -> list[tuple[str, str, Tensor]]:
        """What each layer says of the first record, in the order in which they end."""
        heard: list[tuple[str, str, Tensor]] = []

        def listen(name: str, part: nn.Module, got: object, out: object) -> None:
            first = out[0] if isinstance(out, tuple) else out
            if isinstance(first, Tensor) and first.ndim and len(first) == len(batch):
                heard.append((name, type(part).__name__, first[0].detach()))

        named = [(name, part) for name, part in self.net.module.named_modules() if name]
        hooks = [part.register_forward_hook(partial(listen, name)) for name, part in named]
        try:
            self._outputs(batch)
        finally:
            for hook in hooks:
                hook.remove()
        return heard

    @property
    def _random(self) -> bool:
        first, *others = (self._outputs(self.inputs, seed) for seed in range(3))
        return not all(self._near(first, other) for other in others)

    def _outputs(self, batch: Tensor, seed: int = 0) -> Tensor:
        with torch.no_grad(), _drawing(self.net.module, seed):
            found: Tensor = self.net.module(batch)
        return found

    def _rows(self, batch: Tensor) -> Tensor:
        """The engine's gradients of single records."""
        with _drawing(self.net.module), gradients(self.net, self.goal, self.fit) as rows:
            return rows(batch, self.targets[: len(batch)])

    def _loss(self, batch: Tensor) -> Tensor:
        with _drawing(self.net.module):
            return loss_of(self.goal, self.net.module(batch), self.targets)

    def _near(self, one: Tensor, other: Tensor) -> bool:
        one, other = (torch.nan_to_num(x.detach().double(), 0.0) for x in (one, other))
        return bool((one - other).abs().max() <= self.near * (1 + one.abs().max()))

    def _alike(self, one: Tensor, other: Tensor) -> bool:
        return bool((one - other).norm() <= self.near * self.fit.clip)

    def _clipped(self, row: Tensor) -> Tensor:
        row = row.detach().double()
        return row * (self.fit.clip / row.norm().clamp(min=self.fit.clip)) if row.isfinite().all() else 0 * row

    @staticmethod
    def _beside(one: Tensor, rest: Tensor) -> Tensor:
        return torch.cat([one, rest])


def _named(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All that leaves a client of its model, by name: counters stay at home."""
    yield from ((name, value) for name, value in module.named_parameters() if value.requires_grad)
    yield from ((name, value) for name, value in module.named_buffers() if value.is_floating_point())


def _weights(module: nn.Module, start: int) -> Tensor:
    """What training starts from, or weights off it by chance; what is not trained stays."""
    draw, trained = Coins.from_seed(start).child("opened").fast(), dict(module.named_parameters())
    found = []
    for name, value in _named(module):
        flat = value.detach().flatten().float().cpu()
        if start and name in trained:
            flat = flat + (SHARE * flat.abs().mean() + LEAST) * torch.randn(flat.shape, generator=draw)
        found.append(flat)
    return torch.cat(found)


def _other_records(inputs: Tensor) -> Tensor:
    """Made-up records of the same shape: normal ones, and every other one far out; words are drawn among those seen."""
    draw = Coins.from_seed(0).child("strangers").fast()
    if not inputs.is_floating_point():
        low, high = int(inputs.min()), int(inputs.max())
        return torch.randint(low, high + 1, inputs.shape, generator=draw).to(inputs)
    found = torch.randn(inputs.shape, generator=draw)
    found[1::2] *= FAR
    return found.to(inputs)


def _drops(module: nn.Module) -> bool:
    return any(isinstance(part, (*_DROPS, *_HOLDS)) for part in module.modules())


@contextmanager
def _quiet(module: nn.Module, quiet: bool) -> Iterator[None]:
    """Without dropout for a while; everything else goes on training."""
    parts = [part for part in module.modules() if quiet and isinstance(part, _DROPS)]
    held = [(part, part.dropout) for part in module.modules() if quiet and isinstance(part, _HOLDS)]
    for part in parts:
        part.eval()
    for holder, _ in held:
        holder.dropout = 0.0
    try:
        yield
    finally:
        for part in parts:
            part.train()
        for holder, rate in held:
            holder.dropout = rate


@contextmanager
def _drawing(module: nn.Module, seed: int = 0) -> Iterator[None]:
    """The same draws every time: of torch's own generator, and of our dropout."""
    coins = Coins.from_seed(seed).child("trial")
    draw_from(module, coins.child("masks").fast())
    with coins.child("ambient").ambient():
        yield
