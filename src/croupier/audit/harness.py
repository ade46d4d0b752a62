"""Plays an audit: for each seed it trains every arm, asks every question of it, and keeps what is finished.

`run` owns the seeds, the processes in which attacks run (`audit.blind`) and the shelf of finished parts, so that a
question need not care about any of them: what questions share of a seed is in `audit.bench`, and what they ask is their
own (`audit.questions`). `audit.described` calls `run`. Its result, `ArmAnswers`, is what `audit.verdict` judges;
`audit.recorded.audited` makes the same values from recorded updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from croupier.audit.bench import Bench, Watch
from croupier.audit.blind import Panel
from croupier.audit.question import Adversary, Arm, Promise, Question, QuestionRun
from croupier.audit.setting import Setting
from croupier.core.attempt import Drive
from croupier.core.revive import Shelf, got, put
from croupier.errors import Unsuited


@dataclass(frozen=True)
class Cost:
    """What a protocol costs in one run: the `measure` of the model by round (from 1), bytes a client sends in a round
    on average, and seconds that a round takes beside training.
    """

    measure: str
    by_round: Mapping[int, float]
    bytes: float
    seconds: float


# In place of an adversary, where a question was asked of nobody: it does not fit, or no round could be played.
EVERYBODY = ""


@dataclass(frozen=True)
class ArmAnswers:
    """One arm from one seed: trials by question and adversary, and what the protocol costs.

    `refused` says why other adversaries were not asked, or under `EVERYBODY` why nobody was.
    """

    trials: Mapping[str, Mapping[str, QuestionRun]]
    refused: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    cost: Cost | None = None


def part(seed: int, arm: Arm) -> str:
    """What an arm's result is called among those that are kept."""
    return f"seed-{seed}-{arm.key}"


def run(
    setting: Setting, arms: Sequence[Arm], who: Mapping[str, tuple[Adversary, ...]], questions: Sequence[Question],
    seeds: Sequence[int], drive: Drive, watch: Watch = lambda _: None, kept: Shelf | None = None,
) -> dict[str, list[ArmAnswers]]:  # fmt: skip
    """Ask every question of every arm from every seed: by arm, one answer a seed.

    Finished arms go to `kept`, and what is there is not done again. One arm is attacked while the next one is trained.
    """
    shelf: Shelf = {} if kept is None else kept
    with Panel(setting.workers, setting.device) as panel:
        for number, seed in enumerate(seeds):
            if all(part(seed, arm) in shelf for arm in arms):
                continue
            bench = Bench(setting, seed, panel, drive, watch, tuple(arms), who)
            asked = [question for question in questions if number < question.seeds]
            waiting: list[tuple[str, Callable[[], ArmAnswers]]] = []
            for arm in arms:
                if part(seed, arm) in shelf:
                    continue
                waiting.append((part(seed, arm), _play(bench, arm, asked)))
                if len(waiting) > 1:
                    name, done = waiting.pop(0)
                    put(shelf, name, done())
            for name, done in waiting:
                put(shelf, name, done())
    return {arm.key: [got(shelf, part(seed, arm), ArmAnswers) for seed in seeds] for arm in arms}


def _play(bench: Bench, arm: Arm, questions: Sequence[Question]) -> Callable[[], ArmAnswers]:
    promises: dict[str, Promise] = {}
    refused: dict[str, dict[str, str]] = {}
    for question in questions:
        every = (question.by,) if question.by else bench.adversaries(arm)
        if why := bench.played(arm).lost if not bench.played(arm).rounds else question.unfit(bench, arm):
            refused[question.use] = {EVERYBODY: why}
            continue
        reasons = {one: question.unseen(bench, arm, one) for one in every}
        refused[question.use] = {one.key: why for one, why in reasons.items() if why}
        if able := [one for one, why in reasons.items() if not why]:
            try:
                promises[question.use] = question.play(bench, arm, able)
            except Unsuited as error:
                refused[question.use] = {EVERYBODY: str(error)}
    cost = _cost(bench, arm)
    return lambda: ArmAnswers({name: dict(promise()) for name, promise in promises.items()}, refused, cost)


def _cost(bench: Bench, arm: Arm) -> Cost:
    played, measure = bench.played(arm), bench.stage(arm).measure
    sent = [done.traffic.sent[client] for done in played.rounds for client in done.present]
    by = {done.number + 1: done.metrics[measure] for done in played.rounds if measure in done.metrics}
    return Cost(measure, by, sum(sent) / max(1, len(sent)), played.seconds)
