"""Watch a network run, and note for every operation what it makes of the axes of its operands.

A torch function mode sees every call, runs it unchanged, and asks the rule of that name what the result's axes are. An
operation without a rule is an error that names it and the module it ran in: a guess could permute a network into
another one. Rules register themselves with `@rule`, in the files beside this one; `trace` runs networks under the
`Tracer`.

Axes are kept on the tensors themselves, as the attribute `_axes`. A tensor without it is a constant: numbers that are
written into the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from croupier.errors import SpecError
from croupier.learn.axes.terms import Term, fix, new, size_of, unify

Labels = tuple[Term, ...]
CONSTANT = "it meets numbers that are written into the network"
OPAQUE = "it is in a module that was declared opaque"


class Tracer(TorchFunctionMode):
    """Runs every operation as it is, and gives its results axes by the rule for it.

    Raises: SpecError on an operation without a rule, that names it and the module that called it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.used: list[Term] = []
        self._at: list[tuple[str, nn.Module]] = []
        self._quiet = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._quiet or not any(True for _ in _labelled((args, kwargs))):
            return func(*args, **kwargs)
        name = _name(func)
        if name in FACTS:
            return func(*args, **kwargs)
        if (rule := RULES.get(name)) is None:
            raise self.unknown(name)
        # Before the operation runs: one that works in place would change what a constant looks like.
        operands = [part for part in _tensors((args, kwargs)) if not hasattr(part, "_axes")]
        if any(part.grad_fn is not None for part in operands):
            raise self.unseen()
        kept = {id(part): constant(part) for part in operands}
        out = func(*args, **kwargs)
        if kwargs.get("out", out) is None:
            # Some of torch's functions pass on that nobody said where the result should go.
            kwargs = {key: value for key, value in kwargs.items() if key != "out"}
        try:
            rule(TracedCall(self, name, kept), out, *args, **kwargs)
        except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise self.unknown(f"{name} as it is called here") from error
        return out

    def _here(self) -> str:
        """The module that runs, by its path and kind; the outermost has no path."""
        path, module = self._at[-1] if self._at else ("", self)
        return f"{f'module {path!r}' if path else 'the network'} ({type(module).__name__})"

    def unknown(self, what: str) -> SpecError:
        """No rule is known for this."""
        return SpecError(
            f"symmetry: no rule is known for {what!r}, which {self._here()} calls; name "
            "that module in `opaque` (task.opaque of a description), so that all of its axes stay as they are, or "
            "declare a Symmetry yourself"
        )

    def unseen(self) -> SpecError:
        """What a module is given was made from weights, and yet by no operation that passed by here."""
        return SpecError(
            f"symmetry: {self._here()} is given the result of something that could not be "
            "watched, such as compiled code; name the module that does it in `opaque` (task.opaque "
            "of a description), or declare a Symmetry yourself"
        )

    @contextmanager
    def watching(self, module: nn.Module, opaque: Iterable[str]) -> Iterator[None]:
        """Know which module runs, and let the opaque ones run unseen."""
        closed = set(opaque)
        hooks = []
        for path, part in module.named_modules():
            hooks.append(part.register_forward_pre_hook(self._enter(path, path in closed)))
            hooks.append(part.register_forward_hook(self._leave(path in closed)))
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, path: str, closed: bool) -> Callable[[nn.Module, Any], None]:
        def enter(part: nn.Module, inputs: Any) -> None:
            self._at.append((path, part))
            if closed:
                held = [*_labelled(inputs), *part.parameters(), *part.buffers()]
                for term in (term for tensor in held for term in getattr(tensor, "_axes", ())):
                    fix(term, OPAQUE)
                self._quiet += 1

        return enter

    def _leave(self, closed: bool) -> Callable[[nn.Module, Any, Any], None]:
        def leave(part: nn.Module, inputs: Any, out: Any) -> None:
            self._at.pop()
            if closed:
                self._quiet -= 1
                for tensor in _tensors(out):
                    label(tensor, tuple(new(size, OPAQUE) for size in tensor.shape))

        return leave


class TracedCall:
    """One operation as its rule sees it."""

    def __init__(self, tracer: Tracer, name: str, constants: dict[int, Labels]) -> None:
        self.tracer, self.name, self._constants = tracer, name, constants

    def axes(self, tensor: Tensor) -> Labels:
        """The axes of an operand."""
        found: Labels | None = getattr(tensor, "_axes", None)
        if found is None:
            return self._constants[id(tensor)]
        if not found and tensor.dim():
            raise self.tracer.unknown(f"{self.name} of {getattr(tensor, '_what', 'something without axes')}")
        return found

    def use(self, *operands: Tensor | None) -> None:
        """Note that an operation took each axis of its operands by itself, so that no two of them are one group."""
        for operand in operands:
            if operand is not None:
                self.tracer.used += self.axes(operand)

    def part(self, *terms: Term) -> None:
        """Note that an operation told these factors of an axis apart."""
        self.tracer.used += terms

    def refuse(self, what: str) -> SpecError:
        """This operation has a rule, but not for this use of it."""
        return self.tracer.unknown(f"{self.name} {what}")


def label(tensor: Tensor, axes: Sequence[Term]) -> None:
    """Give a tensor its axes."""
    if len(axes) != tensor.dim() or any(size_of(term) != size for term, size in zip(axes, tensor.shape, strict=True)):
        raise AssertionError(f"axes of sizes {[size_of(term) for term in axes]} for {tuple(tensor.shape)}")
    tensor._axes = tuple(axes)  # type: ignore[attr-defined]


def close(tensor: Tensor, what: str) -> None:
    """Let nobody use a tensor of which no axes can be told, and say what it is where somebody does."""
    tensor._axes, tensor._what = (), what  # type: ignore[attr-defined]


def constant(tensor: Tensor) -> Labels:
    """Axes of numbers that are no weights: fixed, but for those along which nothing changes."""
    found = []
    for number, size in enumerate(tensor.shape):
        even = size < 2 or bool((tensor == tensor.narrow(number, 0, 1)).all())
        found.append(new(size, "" if even else CONSTANT))
    return tuple(found)


def same(terms: Iterable[Term]) -> Term:
    """Make axes the same, and give it."""
    first, *others = terms
    for other in others:
        unify(first, other)
    return first


def _tensors(held: Any) -> Iterator[Tensor]:
    if isinstance(held, Tensor):
        yield held
    elif isinstance(held, dict):
        yield from _tensors(list(held.values()))
    elif isinstance(held, list | tuple):
        for part in held:
            yield from _tensors(part)


def _labelled(held: Any) -> Iterator[Tensor]:
    yield from (part for part in _tensors(held) if hasattr(part, "_axes"))


def _name(func: Callable[..., Any]) -> str:
    name = getattr(func, "__name__", repr(func))
    return str(getattr(getattr(func, "__self__", None), "__name__", name)) if name in ("__get__", "__set__") else name


Rules = dict[str, Callable[..., None]]
RULES: Rules = {}
# What tells of a tensor, and not of its numbers.
_FACTS = """
    shape size dim ndim ndimension numel nelement dtype device is_cuda requires_grad requires_grad_ is_floating_point
    is_nested is_complex layout grad_fn is_sparse is_quantized is_contiguous stride __len__ __hash__ is_leaf names grad
    is_mps is_meta itemsize element_size new_zeros new_ones new_full zeros_like ones_like full_like get_device
"""
FACTS = frozenset(_FACTS.split())


def rule(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The rule for operations of these names: it is called with the call, its result and its operands."""

    def keep(function: Callable[..., None]) -> Callable[..., None]:
        for name in names:
            RULES[name] = function
        return function

    return keep


def numbers(*held: Any) -> list[Tensor]:
    """The tensors among operands that are not bare numbers."""
    return [part for part in _tensors(held) if part.dim()]
