"""Rules for attention, where whole heads change places and each head has an inner axis of its own.

One file of rules among several (`layers`, `pointwise`, `recurrent`, `shapes`), which `tracer` looks up by an
operation's name. Attention needs its own because a head is a block of an axis: blocks may change places as wholes, and
inside a block queries and keys must agree on an order while values follow another.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from croupier.learn.axes.terms import Term, cut, fix, joined, new, size_of, unify
from croupier.learn.axes.tracer import TracedCall, close, label, rule, same

CAUSAL = "every place sees only those before it"


@rule("scaled_dot_product_attention")
def attend(
    call: TracedCall,
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> None:
    """Queries and keys meet in their inner axis, keys and values in their places."""
    if enable_gqa:
        raise call.refuse("with grouped queries")
    q, k, v = (call.axes(part) for part in (query, key, value))
    lead = [same(terms) for terms in zip(q[:-2], k[:-2], v[:-2], strict=True)]
    unify(q[-1], k[-1])
    unify(k[-2], v[-2])
    _masked(call, attn_mask, is_causal, q[-2], k[-2], lead)
    label(out, (*lead, q[-2], v[-1]))
    call.use(query, key, value, out)


def _masked(call: TracedCall, mask: Tensor | None, causal: bool, asks: Term, seen: Term, lead: list[Term]) -> None:
    if causal:
        fix(asks, CAUSAL)
        fix(seen, CAUSAL)
    if mask is not None:
        axes = call.axes(mask)
        for term, other in zip(reversed(axes), (seen, asks, *reversed(lead)), strict=False):
            if size_of(term) > 1:
                unify(term, other)


@rule("multi_head_attention_forward")
def heads(
    call: TracedCall,
    out: tuple[Tensor, Tensor | None],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    many: int,
    packed: Tensor | None,
    bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    zero: bool,
    dropout: float,
    out_weight: Tensor,
    out_bias: Tensor | None,
    **named: Any,
) -> None:
    """torch's own attention: whole heads change places; queries and keys share an inner axis, values have theirs."""
    if bias_k is not None or bias_v is not None or zero or query.dim() != 3:
        raise call.refuse("with extra keys or without a batch")
    team, inner, carried = new(many), new(width // many), new(width // many)
    call.part(team, inner, carried)
    wants = ((*team, *inner), (*team, *inner), (*team, *carried))
    asked = [call.axes(part) for part in (query, key, value)]
    if packed is not None:
        stacked, columns = call.axes(packed)
        for part in asked:
            unify(columns, part[2])
        rows = cut(stacked, [width] * 3)
    else:
        apart = [call.axes(named[f"{letter}_proj_weight"]) for letter in "qkv"]
        rows = [weight[0] for weight in apart]
        for weight, part in zip(apart, asked, strict=True):
            unify(weight[1], part[2])
    if bias is not None:
        unify(call.axes(bias)[0], joined(rows))
    for term, want in zip(rows, wants, strict=True):
        unify(term, want)
    over, columns = call.axes(out_weight)
    unify(columns, wants[2])
    if out_bias is not None:
        unify(over, call.axes(out_bias)[0])
    (places, batch, _), (seen, others, _), (held, more, _) = asked
    same((batch, others, more))
    unify(seen, held)
    padding = named.get("key_padding_mask")
    if padding is not None:
        unify(call.axes(padding)[-1], seen)
        unify(call.axes(padding)[0], batch)
    _masked(call, named.get("attn_mask"), bool(named.get("is_causal")), places, seen, [])
    label(out[0], (places, batch, over))
    call.use(query, key, value, packed, bias, out_weight, out_bias, out[0])
    if out[1] is not None:
        close(out[1], "attention's weights, for which need_weights=False can do without")
