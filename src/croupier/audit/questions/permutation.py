"""The question `permutation`: can the server put hidden coordinates back in order?

An encoding such as Tazza's permutes the hidden units of what clients send. The attack (`audit.attacks.permutation`)
guesses the order of each upload from the server's views, in a process of its own; its guesses are compared here with
the true orders (`audit.permuted_run`), each of which is called a rule. `audit.harness` plays the question for
`croupier audit`; the laboratory's `bench/leakage/permuted_pictures` takes `with_control` and `onlooker` from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar

from croupier.audit.attacked_training import SeededTask as Ground
from croupier.audit.attacks.permutation import Guess
from croupier.audit.bench import Bench
from croupier.audit.blind import Panel
from croupier.audit.permuted_run import PermutedRun
from croupier.audit.question import Adversary, Arm, Promise, Question, QuestionRun, Score
from croupier.audit.report.words import Table, capital, interval, rate_of, table
from croupier.audit.seen import shows
from croupier.audit.setting import Depth
from croupier.core.coins import Coins
from croupier.core.intervals import Rate
from croupier.core.revive import plain
from croupier.encode.symmetry import Rule
from croupier.errors import SpecError
from croupier.learn.axes.matching import after, shares
from croupier.pipeline import Pipeline

TOPIC = "permutation"
CLIENTS = frozenset({"client", "clients"})
# By attack, the measure of a group of hidden units that it is scored by (see `scored`).
MEASURES = {"plain": "absolute", "between": "relative"}
THREAT = (
    "Here the server is curious and follows the protocol. It has its own views, the models that it handed out and the "
    "uploads that came back, and the public network; nothing of the rule."
)


def with_control(pipeline: Pipeline) -> list[Pipeline]:
    """The pipeline, and its control: the same with the first model from elsewhere, in plain order or not."""
    own = pipeline.encode
    first, other = ("clients", "open") if own.clients_start else ("open", "clients")
    # A control with another first model only works where each next model is made of this round's uploads alone: what is
    # added to the last model must lie in the order of that one.
    is_anew = own.form == "weights" and pipeline.aggregate.anew
    # A round that is lost because nobody knows the last rule would show nothing.
    held = {"fetch": "anyone"} if own.every_round else {}
    encoders = [own.model_copy(update={"first": each, **held}) for each in (first, *([other] if is_anew else []))]
    return [pipeline.model_copy(update={"encode": encode}) for encode in encoders]


def onlooker(run: PermutedRun) -> Coins:
    """The coins of the attacks and of what is drawn for them; an attack is given single nodes of them only."""
    encode = run.pipeline.encode.plain()
    return Coins.from_seed(run.ground.seed).child("onlooker", str(sorted(encode.items())))


def order_of(run: PermutedRun, depth: Depth, panel: Panel) -> Callable[[], dict[str, Any]]:
    """Train, and ask for the orders of the rounds; returns a function that waits for the answer and scores it."""
    kept = run.pipeline.encode.keeps_rule
    # Under one rule all rounds look alike: two of them say it.
    done = run.played(min(depth.rounds, 2 if kept else 99))
    asked = {
        "rounds": plain(tuple(run.seen(done))), "most": depth.uploads, "coins": onlooker(run).child("follow").export(),
    }  # fmt: skip
    answer = panel.ask(TOPIC, {"symmetry": plain(run.symmetry)}, asked)

    def scores() -> dict[str, Any]:
        guesses = [
            Guess(one["frame"], Rule({group: each.numpy() for group, each in one["places"].items()}), one["matched"])
            for one in answer.result()["guesses"]
        ]
        groups = scored(guesses, answer.result()["base"], run)
        return {"first": run.first, "kept": kept, "rounds": len(done), "groups": groups}

    return scores


def scored(guesses: Sequence[Guess], base: bytes, run: PermutedRun) -> list[dict[str, Any]]:
    """The share of each group's places that were recovered, absolutely and from the order of the first model.

    Of guesses that needed matching, where any did. Each is a mean over uploads; `least` is the worst upload's.
    """
    guesses, start = [guess for guess in guesses if guess.matched] or guesses, run.truth(base)
    truths = {guess.frame: run.truth(guess.frame) for guess in guesses}
    absolute = [shares(guess.rule, truths[guess.frame]) for guess in guesses]
    relative = [shares(after(start, guess.rule), truths[guess.frame]) for guess in guesses]
    return [
        {"group": group, "size": size, "uploads": len(guesses), "absolute": fmean(one[group] for one in absolute),
         "relative": fmean(one[group] for one in relative), "least": min(one[group] for one in relative)}
        for group, size in run.symmetry.groups.items()
    ]  # fmt: skip


class Permutation(Question, use="permutation"):
    """Does the server find the order of permuted uploads: the plain one, or at least one order for all rounds?"""

    asks: ClassVar[str] = "Can hidden coordinates be put back in order?"
    learns: ClassVar[str] = "the hidden order"
    gains: ClassVar[str] = (
        "the permutation is recovered: of 100 permuted places, {n} more are put in order than by a random one"
    )
    titles: ClassVar[Mapping[str, str]] = {
        "plain": "plain order, by matching weights with those of the first model",
        "between": "one order for all rounds, by matching weights round after round",
        "told": "the rule, told by a client",
    }
    seeds: ClassVar[int] = 4

    def unfit(self, bench: Bench, arm: Arm) -> str:
        """Where nothing is permuted, nothing can be put back."""
        if not arm.pipeline.encode.agrees:
            return "nothing is permuted: the protocol sends coordinates in plain order"
        try:
            _ = _run(bench, arm, arm.pipeline).symmetry
        except SpecError as error:
            return str(error)
        return ""

    def unseen(self, bench: Bench, arm: Arm, adversary: Adversary) -> str:
        """Who does not get single updates with the models they came of has nothing to match."""
        if "server" not in adversary.parties:
            if CLIENTS & set(adversary.parties):
                return "clients know the rule: it hides coordinates from the server alone"
            return "only the server has the models and the updates that are to be brought together"
        found = shows(arm.pipeline, Adversary(("server",)))
        return "" if found.kind == "named" else found.why or "it sees no single updates that could be matched"

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """The protocol and its control, which is the same protocol with the first model known."""
        depth, panel = bench.setting.depth, bench.panel
        orders = [order_of(_run(bench, arm, one), depth, panel) for one in with_control(arm.pipeline)]

        def trials() -> Mapping[str, QuestionRun]:
            found = [order() for order in orders]
            scores, is_open = _scores(found[0]), found[0]["first"] == "open"
            # Where the first model is in plain order the rule is recovered when all places are; where the clients drew
            # it, when all rounds are in one order: no view is in another.
            scores = {name: scores[name] for name in (("between", "plain") if is_open else scores)}
            controls = _scores(next((one for one in found if one["first"] == "open"), found[0]))
            alone = QuestionRun(scores, controls, facts={"orders": found} if arm.own else {})
            # A server that a client helps needs no matching.
            told = QuestionRun({**scores, "told": Score(1.0, scores["plain"].prior)}, controls)
            return {who.key: told if CLIENTS & set(who.parties) else alone for who in adversaries}

        return trials

    def facts(self, trials: Sequence[QuestionRun]) -> dict[str, Any]:
        """Tables over runs."""
        found = [one.facts["orders"] for one in trials if "orders" in one.facts]
        return summarise(found) if len(found) > 1 else {}

    def words(self, gain: Rate, attack: str = "") -> str:
        """Which order it is that was recovered."""
        more = {"between": "all rounds are in one order, which itself stays unknown", "told": "a client told the rule"}
        return super().words(gain, attack) + (f" ({more[attack]})" if attack in more and gain.low > 0 else "")


def _run(bench: Bench, arm: Arm, pipeline: Pipeline) -> PermutedRun:
    setting = bench.chosen(arm)
    ground = bench.once(("ground", setting), lambda: Ground(setting, bench.seed))
    return PermutedRun(ground, pipeline, bench.drive)


def _scores(order: Mapping[str, Any]) -> dict[str, Score]:
    """The share of all places that were recovered, beside that of a random order."""
    groups = order["groups"]
    places = sum(group["size"] for group in groups)
    return {
        name: Score(sum(group[key] * group["size"] for group in groups) / places, len(groups) / places)
        for name, key in MEASURES.items()
    }


def summarise(found: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """What to show of the orders of each run: sentences and tables; and the `numbers` behind them."""
    orders = [{"own": not at, **_over_runs(parts)} for at, parts in enumerate(zip(*found, strict=True))]
    own, *others = orders
    return {
        "sentences": [
            recovered(own), THREAT, *(f"Where {one['name']}: {recovered(one)}" for one in others),
            f"The description's own pipeline, agreement and clients are run for {own['rounds']} rounds, and once more "
            "with the first model from elsewhere. Rules and records are known to the scorer alone.",
            "Recovered: the share of a group's places that weight matching has right, from plain order, and between "
            "rounds from the order of the first model that was handed out. Chance is a random order's, 1 over the "
            f"size. Means over uploads, with 95 % intervals over {len(found)} runs; an interval of no width says that "
            "all runs agree, and no more.",
            "What records then look like, what public pictures make of the unknown order, and what a client does that "
            "breaks the rule: croupier bench permutation.",
        ],
        "tables": [each for order in orders for each in _places(order)], "numbers": {"orders": orders},
    }  # fmt: skip


def _over_runs(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One variant of the protocol over runs."""
    first, groups = parts[0], []
    for lines in zip(*(part["groups"] for part in parts), strict=True):
        size = lines[0]["size"]
        groups.append({
            "group": lines[0]["group"], "size": size, "uploads": sum(line["uploads"] for line in lines),
            **{key: rate_of([line[key] for line in lines]) for key in MEASURES.values()},
            "least": min(line["least"] for line in lines), "chance": 1 / size,
        })  # fmt: skip
    who = "the server knows the first model" if first["first"] == "open" else "the clients draw the first model"
    name = f"{who}, {'one rule for the epoch' if first['kept'] else 'a rule every round'}"
    return {**first, "name": name, "groups": groups}


def _places(order: Mapping[str, Any]) -> list[Table]:
    """How much of each permutation is recovered."""
    heads = ("Group", "Places", "Plain order, %", "Between rounds, %", "Worst upload, %", "Chance, %", "Uploads")
    title = f"Places recovered. {capital(order['name'])}{' (the description)' if order['own'] else ''}"
    return table(title, heads, [
        (one["group"], str(one["size"]), interval(one["absolute"], 100), interval(one["relative"], 100),
         f"{100 * one['least']:.1f}", f"{100 * one['chance']:.1f}", str(one["uploads"]))
        for one in order["groups"]
    ])  # fmt: skip


def recovered(order: Mapping[str, Any]) -> str:
    """What a permutation is worth: which places matching recovers."""
    groups = order["groups"]
    places = sum(group["size"] for group in groups)
    plain, between = (
        f"{sum(group[key]['rate'] * group['size'] for group in groups) / places:.1%}" for key in MEASURES.values()
    )  # fmt: skip
    chance = f"a random order recovers {len(groups) / places:.1%}"
    if order["first"] == "clients":
        said = (
            f"Obfuscation, not encryption: by matching weights the server links {between} of the {places} permuted "
            f"places of all rounds, and brings {plain} into plain order ({chance}). What stays hidden is the one order "
            "of the first model, until one client tells the rule."
        )
    else:
        whole = all(group["absolute"]["low"] >= 0.99 for group in groups)
        said = f"Weight matching recovers {plain} of the {places} permuted places; {chance}. " + (
            "Obfuscation, not encryption: nothing that depends on the rule survives, and the server holds updates in "
            "plain order, as where nothing defends."
            if whole
            else "That it failed in some groups is no proof that no attack can."
        )
    return f"{said} For confidentiality from the server use sum servers, which make the permutation unnecessary."
