"""What an adversary's views amount to: updates with or without names, sums, or a model, as far as it can read.

`shows` answers for a protocol, before any round, what an adversary gets to see of updates; the questions choose their
attacks by it. `seen`, `begun` and `counted` read the views of a round; attacks in `audit.attacks` call them in their
own process, so that a view is itself read without the truth. Experiments that hold the truth beside a view read it by
the same functions (`audit.traits.findings`; `read_server` in `audit.permuted_run` and `audit.traits.tiers`), and so
does an audit of the views that a party of a deployment kept (`audit.recorded.viewed`). No encoder, release or placement
is known by its class: each says how it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.audit.client_view import handed, in_order, letters, order_known, trained_from
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Inbox, Received
from croupier.core.update import Gathered, Layout, Model, Update
from croupier.encode.encoder import Brief, Released
from croupier.encode.residues import Counted
from croupier.errors import ProtocolError, SpecError
from croupier.pipeline import Direct, Pipeline
from croupier.place.witness import Witness
from croupier.statement import NETWORK

if TYPE_CHECKING:
    from croupier.audit.question import Adversary

# By party, its views as plain values (`core.view.facts`): that of the round in question, and the next one's if any.
# A party may bring its own `coins` of the round beside them: some of those who put views together need them.
Views = Mapping[str, Sequence[Mapping[str, Any]]]
# From what tells least on. noise: rows that are uniform whatever was sent, with their senders' names; sum: of
# everybody's updates, or the model that came of it; counts: of ones in residues; parameter, layer, model: rows shuffled
# by that grain; named: rows with their senders' names.
Kind = Literal["nothing", "noise", "sum", "counts", "parameter", "layer", "model", "named"]
_MORE = get_args(Kind)
_CLIENTS = ("client", "clients")
# For rules that toss no coins where they are asked here.
_NO_COINS = Coins(bytes(32))


@dataclass(frozen=True)
class Shows:
    """What an adversary gets to see of updates.

    `why` is the reason where that is nothing, or proved to be noise. `parties` are those of the adversary whose views
    show it.
    """

    kind: Kind
    why: str = ""
    parties: tuple[str, ...] = field(default=(), compare=False)


def shows(pipeline: Pipeline, adversary: Adversary) -> Shows:
    """What this adversary gets to see of updates in a protocol: of all that its parties see, what tells most."""
    return _most(pipeline, adversary.parties)


def _most(pipeline: Pipeline, parties: tuple[str, ...]) -> Shows:
    return max(_all_shown(pipeline, parties), key=lambda one: _MORE.index(one.kind))


def _all_shown(pipeline: Pipeline, parties: tuple[str, ...]) -> Iterator[Shows]:
    for party in parties:
        found = _alone(pipeline, party)
        # Parties that see noise alone add it up, and it is still noise.
        alike = tuple(other for other in parties if _alone(pipeline, other) == found)
        yield replace(found, parties=alike if found.kind == "noise" else (party,))
    for apart, kind in pipeline.place.breaks.items():
        if set(apart) <= set(parties):
            yield Shows(kind, parties=apart)


def _alone(pipeline: Pipeline, party: str) -> Shows:
    if party == "network":
        return Shows("nothing", f"the network learns {NETWORK}")
    if party in _CLIENTS:
        return Shows("sum")
    seen = None if party == "server" else pipeline.place.sight(pipeline, party)
    return _released(pipeline) if seen is None or seen.kind == "released" else Shows(seen.kind, seen.why)


def _released(pipeline: Pipeline) -> Shows:
    """What whoever gets the release sees."""
    release = pipeline.release
    if "ids" not in release.hides:
        return Shows("named")
    return Shows("counts" if release.counts_ones else release.pieces or "sum")


def seen(views: Views, protocol: Mapping[str, Any], layout: Layout, start: Tensor | None = None) -> Gathered:
    """What an adversary makes of its views of a round, as whole models (`form` is "weights").

    `start` is the model that was handed out in it. Raises: SpecError when there is nothing to be read.
    """
    pipeline = Pipeline.parse(protocol)
    found, mine = _looked(views, pipeline)
    if found.kind == "nothing":
        raise SpecError(f"{', '.join(mine)}: {found.why}")
    plain, order = _brought(views, pipeline, start)
    if found.parties == ("server",):
        return _server(views["server"][0], pipeline, layout, plain, order)
    alone = len(found.parties) == 1
    parties = {name: _witness(own[0], pipeline, layout, says_sent=not alone) for name, own in mine.items()}
    if alone and found.parties[0] in _CLIENTS:
        (name, client), *_ = parties.items()
        if not client.received("published"):
            return _model(_handed(mine[name], pipeline), client.given.roster)
    released = pipeline.place.pooled(pipeline, parties)
    got = pipeline.encode.decode_apart(released, _brief(pipeline, released.layout, start))
    if got.scaled and found.kind != "noise" and got.rows is not None and got.weights is not None:
        # Rows that were sent multiplied by their weight, before that; one rounded to nothing took its row with it.
        by = torch.where(got.weights > 0, got.weights, 1.0).unsqueeze(1)
        got = replace(got, rows=(got.rows.double() / by).float(), scaled=False)
    # Noise has no weight of its own.
    got = replace(got, scaled=False) if found.kind == "noise" else got
    return _whole(in_order(got, order), pipeline, plain)


def begun(views: Views, protocol: Mapping[str, Any], start: Tensor) -> Tensor:
    """The model that a round began with, its coordinates in the order of what `seen` makes of the same views.

    `start` is that model as it was handed out. Where coordinates are hidden, a client puts both in plain order: what it
    reads itself, and what other parties of its coalition see. Without a client both stay as they travelled.
    """
    pipeline = Pipeline.parse(protocol)
    found, mine = _looked(views, pipeline)
    if pipeline.encode.agrees and set(found.parties) <= set(_CLIENTS):
        view = next(iter(mine.values()))[0]
        return start if any(one["kind"] == "published" for one in letters(view)) else trained_from(view)
    plain = _brought(views, pipeline, start)[0]
    return start if plain is None else plain


def _brought(views: Views, pipeline: Pipeline, start: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The model that a round began with, and the order in which coordinates travelled if a client among them knows it.

    With an order the model is in plain order, and otherwise as it was handed out.
    """
    middle = ("server", *pipeline.place.middle(pipeline))
    clients = (own for name, own in views.items() if own and name not in middle)
    for own in clients if pipeline.encode.agrees else ():
        if (order := order_known(own)) is not None:
            return trained_from(own[0]), order
    return start, None


def counted(views: Views, protocol: Mapping[str, Any], layout: Layout) -> Counted | None:
    """How many ones the server counted for every parameter and modulus.

    None where it counts none, sees whole updates, or does not see one value a parameter that all count alike.
    """
    pipeline = Pipeline.parse(protocol)
    found, mine = _looked(views, pipeline)
    if found.kind != "counts" or not pipeline.release.counts_ones:
        return None
    view = mine["server"][0]
    return pipeline.encode.counted(_opened(view, pipeline, layout), _told(view))


def _looked(views: Views, pipeline: Pipeline) -> tuple[Shows, Views]:
    """What these parties see that tells most, and the views that are needed to read it."""
    middle = ("server", *pipeline.place.middle(pipeline))
    clients = [name for name, found in views.items() if found and name not in middle]
    # All clients of the round but one, who say what they sent.
    firsts = [views[name][0] for name in clients]
    many = all("coins" in view and len(view["given"]["roster"]) <= len(clients) + 1 for view in firsts)
    # The server first, whose view is taken where several tell the same: bytes of views are in no such order.
    known = {name: name for name in middle} | dict.fromkeys(clients, "clients" if many else "client")
    roles = {name: role for name, role in known.items() if views.get(name)}
    if not roles:
        raise SpecError(f"{', '.join(views) or 'nobody'}: there is no view to read")
    found = _most(pipeline, tuple(dict.fromkeys(roles.values())))
    return found, {name: views[name] for name, role in roles.items() if role in found.parties}


def _witness(view: Mapping[str, Any], pipeline: Pipeline, layout: Layout, *, says_sent: bool) -> Witness:
    """A party with the letters that reached it, and its coins where they are at hand.

    With `says_sent`, a client tells what it sent.
    """
    given = Given(**{**view["given"], "layout": layout})
    got = tuple(letter for value in view["inputs"] for letter in _inbox(value))
    coins = Coins(view["coins"]) if "coins" in view else None
    sent = _sent(view, given, pipeline) if says_sent and given.me in given.roster else None
    return Witness(given, got, coins, sent)


def _inbox(value: Any) -> Inbox:
    """The letters of an input; none where it is the result of work."""
    return tuple(Received(**one) for one in letters({"inputs": (value,)}) if "source" in one)


def _sent(view: Mapping[str, Any], given: Given, pipeline: Pipeline) -> Tensor:
    """What a client sent before it was hidden: its part played again, as if it sent straight to the server."""
    flow = pipeline.model_copy(update={"place": Direct()}).client(given, {}, Coins(view["coins"]))
    for value in (None, *view["inputs"]):
        trained = isinstance(value, Mapping) and "vector" in value
        ask = flow.send(Update(**{**value, "layout": given.layout}) if trained else _inbox(value) or None)
        if isinstance(ask, Exchange) and ask.send and isinstance(body := ask.send[0].body, Mapping):
            return body["vector"]
    raise ProtocolError(f"{given.me} sent nothing")


def _server(
    view: Mapping[str, Any], pipeline: Pipeline, layout: Layout, start: Tensor | None, order: Tensor | None
) -> Gathered:
    if pipeline.release.shape == "scored":
        # Weighted votes are read as the model that the server made of them.
        return _model(server_model(view), view["given"]["roster"])
    return _whole(in_order(read_server(view, pipeline.plain(), layout), order), pipeline, start)


def _opened(view: Mapping[str, Any], pipeline: Pipeline, layout: Layout) -> Released:
    """What the letters in a server's view amount to."""
    boxes = [box for box in view["inputs"] if isinstance(box, tuple) and box and "kind" in box[0]]
    inbox = tuple(Received(**letter) for letter in boxes[-1])
    return pipeline.place.opened(pipeline, view["given"]["roster"], layout, inbox)


def _told(view: Mapping[str, Any]) -> Mapping[str, Tensor]:
    return next((box for box in view["inputs"] if isinstance(box, Mapping)), {})


def read_server(view: Mapping[str, Any], protocol: Mapping[str, Any], layout: Layout) -> Gathered:
    """What the server's view of a round holds, decoded as the public protocol says."""
    pipeline = Pipeline.parse(protocol)
    return pipeline.encode.decode(_opened(view, pipeline, layout), _told(view))


def server_model(view: Mapping[str, Any]) -> Tensor:
    """The model that the server made of a round: the result of its work, in its view. Raises: SpecError without it."""
    for box in reversed(view["inputs"]):
        if isinstance(box, tuple) and box and isinstance(box[0], tuple) and box[0] and "vector" in box[0][0]:
            model: Tensor = box[0][0]["vector"]
            return model
    raise SpecError("a view without the server's aggregation tells no next model")


def _handed(views: Sequence[Mapping[str, Any]], pipeline: Pipeline) -> Tensor:
    """The model of the next round, as a client trains it: what came of this one. Raises: SpecError on the last."""
    if len(views) < 2:
        raise SpecError("a client is handed what came of a round in the next one it takes part in, and there is none")
    return trained_from(views[1]) if pipeline.encode.agrees else handed(views[1])


def _model(vector: Tensor, present: tuple[str, ...]) -> Gathered:
    """A joint model, as the sum of a single update."""
    return Gathered(present, sums=vector.double(), weights=torch.tensor(1.0, dtype=torch.float64))


def _brief(pipeline: Pipeline, layout: Layout | None, start: Tensor | None) -> Brief:
    """The public scale of a rule that follows the model: anybody can compute it from the model handed out."""
    rule = pipeline.aggregate
    if not rule.rescales or layout is None:
        return {}
    return rule.brief(Desk((Model(_known(start)),), layout, _NO_COINS), {})


def _whole(got: Gathered, pipeline: Pipeline, start: Tensor | None) -> Gathered:
    """Whole models, where differences were sent, or their signs."""
    if got.form == "weights":
        return got
    first, weights = _known(start).double(), got.weights
    if weights is None:
        raise SpecError("differences without weights cannot be added to a model")
    if got.rows is None and got.sums is not None and pipeline.encode.signs_only:
        return _model(_voted(got, pipeline, _known(start)), got.present)
    if got.rows is None:
        sums = got.sums.double() + weights.sum() * first if got.sums is not None else None
        return replace(got, sums=sums, form="weights")
    lr = getattr(pipeline.aggregate, "lr", 1.0) if pipeline.encode.signs_only else 1.0
    # Where a row's weight is not known to be its own, all count alike.
    each = weights if got.ids is not None else weights.mean().expand(len(weights))
    by = each.unsqueeze(1) if got.scaled else 1.0
    return replace(got, rows=(by * first + lr * got.rows.double()).float(), form="weights")


def _voted(got: Gathered, pipeline: Pipeline, start: Tensor) -> Tensor:
    """The model that weighted votes make; where there are none, it stays."""
    if not pipeline.aggregate.scores:
        raise SpecError(f"aggregate = {pipeline.aggregate.use!r} makes no model of votes; use 'sign-trust'")
    rule = pipeline.aggregate.model_copy(update={"empty": "stay"})
    (model, *_), _ = rule(got, Desk((Model(start),), Layout(()), _NO_COINS), {})
    return model.vector


def _known(start: Tensor | None) -> Tensor:
    if start is None:
        raise SpecError("what was sent cannot be read without the model that was handed out; pass start")
    return start
