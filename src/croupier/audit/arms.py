"""The protocols that an audit compares, its arms: the description's own, no defence, and others.

What an attack finds means little by itself: a reader wants to know what the same attack finds where nothing defends,
and under other protocols. `arms_of` makes the list for one description, and says why some protocols do not fit its
task. `audit.described` calls it before anything is trained. `--against` takes the names in `KNOWN`, "noise" (the own
noise without its release), presets and TOML files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from croupier.audit.question import Arm
from croupier.audit.report.compare import flat
from croupier.audit.report.words import in_words
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
from croupier.systems import LEAST, intra, naive, plain, rain, sum_servers, tazza, total
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
# The same with `--fast` on large data: the systems, without the naive shuffles.
FEWER = tuple(name for name in AGAINST if not name.startswith("shuffle-"))
NOISE = "noise"
# A protocol that differs from every other one in more places than these is said to be like none.
DIFFERENT = 4
# The labels of coins that these arms had before they had keys; they stay, so that a seed gives what it gave.
_NODES = {
    "shuffle-model": "model shuffle", "shuffle-layer": "layer shuffle", "shuffle-parameter": "parameter shuffle",
    "sum": "sum only",
}  # fmt: skip


def arms_of(
    spec: Spec, setting: Setting, against: Sequence[str] | None, made: Assembled, data: str | Path | None,
    usual: Sequence[str] = AGAINST, called: str = "",
) -> tuple[list[Arm], dict[str, str]]:  # fmt: skip
    """The description's own protocol first, then no defence, then others; and by name why some were left out.

    Where nothing is named `against`, it is the `usual` ones. `called`: the own protocol's name, if not the spec's.
    """
    own, clients, name = spec.protocol, len(made.task.enrolled), called or spec.name
    cohort, named = spec.federation.cohort or clients, usual if against is None else against
    names = ["none", *([NOISE] if not own.privacy.noiseless else []), *(one for one in named if one != "nothing")]
    few = {one: LEAST[one] for one in names if against is None and cohort < LEAST.get(one, 0)}
    left = {one: f"it needs {least} clients in a round, and here are {cohort}" for one, least in few.items()}
    arms = list[Arm]()
    check(own, clients, setting.plan, made.task.offers)
    for one in [one for one in dict.fromkeys(names) if one not in few]:
        title, make = _named(one, spec, data)
        try:
            pipeline = Pipeline.parse(make(cohort).plain())
            lacks = "root" in pipeline.aggregate.asks and not spec.task.root.records
            changes: tuple[tuple[str, Part], ...] = (("root", Root(records=100)),) if lacks else ()
            # A rule that compares with the server's own records is given some, which no client then trains on.
            offers = made.task.offers | ({"root", "forward"} if changes else frozenset())
            check(pipeline, clients, setting.plan, offers)
        except SpecError as error:
            left[one] = str(error)
            continue
        arms.append(Arm(one, title, pipeline, changes, _NODES.get(one, one)))
    # A protocol that is one of them goes by its own name, and has the same coins.
    same = [arm for arm in arms if arm.pipeline == own and not arm.changes]
    others = [arm for arm in arms if arm not in same[:1] and not (arm in same and arm.key == name)]
    # Another protocol that has the description's name keeps it: all that is found goes by names.
    key = f"own-{name}" if any(arm.key == name for arm in others) else name
    node, about = same[0].node if same else spec.name, _nearest(key, own, [arm for arm in arms if arm.key != NOISE])
    return [Arm(key, f"your protocol: {name}", own, node=node, own=True, about=about), *others], left


def _nearest(name: str, own: Pipeline, arms: Sequence[Arm]) -> str:
    """Which of those compared a protocol is nearest to, and in what it differs; nothing where it is like none."""
    mine, best, others = dict(flat("", own.plain())), "", [""] * (DIFFERENT + 1)
    for arm in arms:
        its = dict(flat("", arm.pipeline.plain()))
        keys = [key for key in {**mine, **its} if mine.get(key) != its.get(key)]
        if len(keys) < len(others):
            here, there = ([in_words(one.get(key)) or "nothing" for key in keys] for one in (mine, its))
            others = [f"{key} is {a}, not {b}" for key, a, b in zip(keys, here, there, strict=True)]
            best = (
                f"{name} is as {arm.key} ({arm.title}), but {'; '.join(others)}." if keys else f"{name}: {arm.title}."
            )
    return best


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
