"""The protocols of an audit, its arms: the description's own, no defence, and others that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from croupier.audit.question import Arm
from croupier.audit.setting import Setting
from croupier.core.part import Part
from croupier.engine.federation import check
from croupier.errors import SpecError, nearest, option
from croupier.learn.assemble import Assembled
from croupier.learn.root import Root
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.release.rows import Rows
from croupier.spec import Spec, counted, load
from croupier.systems import intra, naive, plain, rain, sum_servers, tazza, total
from croupier.toml_read import presets

# By name: what a reader calls it, and what makes it for so many clients in a round.
KNOWN: dict[str, tuple[str, Callable[[int], Pipeline]]] = {
    "none": ("no defence: the server sees every update", lambda _: plain("uniform")),
    "shuffle-model": ("whole models shuffled", lambda _: naive("model")),
    "shuffle-layer": ("layers shuffled", lambda _: naive("layer")),
    "shuffle-parameter": ("single parameters shuffled", lambda _: naive("parameter")),
    "sum": ("the sum only", total),
    "rns-servers": ("the sum only, by servers of which one must be honest (RNS)", sum_servers),
    "intra": ("noise by tiers, shuffled in buckets (IntraShuffler)", lambda n: intra(smallest=min(8, max(2, n // 2)))),
    "rain": ("noised signs on two servers (RAIN)", lambda _: rain()),
    "tazza": ("weights permuted, grouped in clusters (Tazza)", lambda _: tazza()),
}
# What a protocol is compared with where nothing else is named.
AGAINST = tuple(name for name in KNOWN if name != "sum")
# The same where time is short: the systems, without the naive shuffles.
FEWER = tuple(name for name in AGAINST if not name.startswith("shuffle-"))
NOISE = "noise"
# The labels of coins that these had before they had keys.
_NODES = {
    "shuffle-model": "model shuffle", "shuffle-layer": "layer shuffle", "shuffle-parameter": "parameter shuffle",
    "sum": "sum only",
}  # fmt: skip


def arms_of(
    spec: Spec, setting: Setting, against: Sequence[str], made: Assembled, data: str | Path | None
) -> tuple[list[Arm], dict[str, str]]:
    """The description's own protocol first, then no defence, then others; and why some do not fit the task."""
    own, clients = spec.protocol, len(made.task.enrolled)
    names = ["none", *([NOISE] if not own.privacy.noiseless else []), *(one for one in against if one != "nothing")]
    arms, left = list[Arm](), dict[str, str]()
    check(own, clients, setting.plan, made.task.offers)
    for name in dict.fromkeys(names):
        title, make = _named(name, spec, data)
        try:
            pipeline = Pipeline.parse(make(spec.federation.cohort or clients).plain())
            lacks = "root" in pipeline.aggregate.asks and not spec.task.root.records
            changes: tuple[tuple[str, Part], ...] = (("root", Root(records=100)),) if lacks else ()
            # A server that compares needs records of its own, which are then kept back from everybody.
            offers = made.task.offers | ({"root", "forward"} if changes else frozenset())
            check(pipeline, clients, setting.plan, offers)
        except SpecError as error:
            left[name] = str(error)
            continue
        arms.append(Arm(name, title, pipeline, changes, _NODES.get(name, name)))
    # A protocol that is one of them goes by its own name, and has the same coins.
    same = [arm for arm in arms if arm.pipeline == own and not arm.changes]
    others = [arm for arm in arms if arm not in same[:1] and not (arm in same and arm.key == spec.name)]
    # Another protocol that has the description's name keeps it: all that is found goes by names.
    key = f"own-{spec.name}" if any(arm.key == spec.name for arm in others) else spec.name
    node = same[0].node if same else spec.name
    return [Arm(key, f"your protocol: {spec.name}", own, node=node, own=True), *others], left


def _named(name: str, spec: Spec, data: str | Path | None) -> tuple[str, Callable[[int], Pipeline]]:
    """The title of a protocol that goes by that name, and what makes it. Raises: SpecError when none does."""
    if name in KNOWN:
        return KNOWN[name]
    if name == NOISE:
        bare = {"release": Rows(), "place": Direct()}
        return "your noise, nothing shuffled", lambda _: spec.protocol.model_copy(update=bare)
    if name in presets() or name.endswith(".toml"):
        count = counted(data)
        other = load(name, count=count).protocol.plain()
        return name, lambda _: load(spec.plain() | {"protocol": other}, count=count).protocol
    every = list(dict.fromkeys([*KNOWN, NOISE, *presets()]))
    raise SpecError(f"{option('against')} = {name!r}: no protocol has that name; {nearest(name, every)}")
