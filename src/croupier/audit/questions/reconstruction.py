"""The question `reconstruction`: what did a client's record look like?

In one more round everybody takes one step on one record of its own. That is the worst case, and the question says so
(`worst`): clients that train longer, on more records, tell less. The attacks are those of
`audit.attacks.reconstruction`, in a process of their own; what they find is compared here with the records, and with an
average of public ones. `audit.harness` plays the question for `croupier audit`; the laboratory's
`attacks/permuted_records` uses `unreadable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from scipy.cluster.vq import kmeans2
from torch import Tensor

from croupier.audit.attacks.reconstruction import TITLES
from croupier.audit.bench import Answered, Bench, PlayedRounds
from croupier.audit.question import SERVER, UNSEEN, Adversary, Arm, Promise, Question, QuestionRun, Score, Unit
from croupier.audit.seen import Kind, shows
from croupier.audit.stage import Stage
from croupier.core.intervals import Rate
from croupier.errors import Unsuited
from croupier.learn.assemble import Assembled
from croupier.learn.ends import find_entrance, is_felt
from croupier.learn.likeness import like, matched, pictured
from croupier.learn.lpips import Learned, learned
from croupier.learn.png import png
from croupier.learn.single import RATE, SingleSteps, single_steps
from croupier.learn.train import Learner

# Rows that are one client's own, with or without a name; of others only the sum is of use.
SINGLE: tuple[Kind, ...] = ("named", "noise", "model")
# So many test records count as public; so many reconstructed pictures are shown.
PUBLIC, SHOWN = 1000, 5
WORST = (
    f"This is the worst case: in one more round, from the first model, everybody takes a single step of SGD (rate "
    f"{RATE:g}) on a single record. Clients that take more steps, on more records, mix these before anything is sent."
)
# From how many dB on a gain is called what. 20 dB more are a tenth of the error, a hundredth of its square.
SCALE = ((30.0, "exactly"), (10.0, "recognisably"), (3.0, "blurred"), (0.0, "as a hint at most"))


@dataclass(frozen=True)
class Scene:
    """The task of one seed as far as records are concerned: which layer reads them, and what is public."""

    stage: Stage
    kinds: dict[int, Tensor] = field(default_factory=dict, repr=False)

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Of a record as a picture; what is none lies in one line."""
        dataset = self.stage.made.dataset
        return pictured(dataset) or (1, 1, int(torch.tensor(dataset.shape).prod()))

    @cached_property
    def is_picture(self) -> bool:
        """Whether records are pictures."""
        return pictured(self.stage.made.dataset) is not None

    @cached_property
    def public(self) -> Tensor:
        """Test records, which count as such that anybody may have seen."""
        test = self.stage.made.dataset.test
        return test.batch(torch.arange(min(PUBLIC, len(test))))[0].cpu()

    @cached_property
    def entrance(self) -> str:
        """How the layer travels off which single records are read: whole, apart from its biases, or there is none."""
        made = self.stage.made
        first = find_entrance(made.module, made.dataset.shape)
        if first is None:
            return "none"
        layers = {part.name: part.layer for part in made.task.layout.carried}
        return "whole" if layers[first.weight] == layers[first.bias] else "apart"

    def single(self, kind: Kind) -> bool:
        """Whether rows can be inverted one by one: layers that were shuffled still are whole layers."""
        return kind in SINGLE or (kind == "layer" and self.entrance == "whole")

    def attacks(self, kind: Kind) -> tuple[str, ...]:
        """The attacks that fit the network and what is seen; the last one uses all that there is."""
        if self.entrance == "none":
            return ("search",)
        return ("read", "read+prior") if self.single(kind) else ("peel",)

    def known(self, steps: int, count: int) -> dict[str, Any]:
        """All that is declared: the network, how clients step, and what public records say of single and of several."""
        made, setting = self.stage.made, self.stage.setting
        inputs, targets = made.dataset.train.batch(torch.arange(1))
        blank = torch.zeros_like(inputs), torch.zeros_like(targets)
        low, high = self.public.amin(0), self.public.amax(0)
        if self.is_picture:
            low, high = torch.zeros_like(low), torch.ones_like(high)
        return {
            "knowledge": setting.knowledge(made, blank, blank).plain(), "rate": RATE, "steps": steps,
            "mean": self.public.mean(0), "spread": self.public.var(0), "low": low, "high": high,
            "pictured": self.is_picture, "guesses": self.centres(count),
        }  # fmt: skip

    def centres(self, count: int) -> Tensor:
        """So many cluster centres of public records: what to name where any order of guesses is as good."""
        if count not in self.kinds:
            flat = self.public.flatten(1).double().numpy()
            found, _ = kmeans2(flat, min(count, len(flat)), minit="++", rng=0)
            self.kinds[count] = torch.from_numpy(found).float().reshape(-1, *self.public.shape[1:])
        return self.kinds[count]


@dataclass(frozen=True)
class ReconstructionAnswer:
    """What the attacks of one adversary answer (`heard`), and the true records of the other clients."""

    scene: Scene
    heard: Answered
    truths: Mapping[str, Tensor] = field(repr=False)
    attacks: tuple[str, ...]
    single: bool
    judge: Learned | None

    def trial(self) -> QuestionRun:
        """Scored, against the public average under the same rules."""
        answer = self.heard.result()
        names, found = tuple(answer["names"]) if self.single else (), answer["found"]
        pairs = {name: self._paired(records, names) for name, records in found.items()}
        measures = {name: self._measured(*pair) for name, pair in pairs.items()}
        priors = {name: self._prior(len(records), names) for name, records in found.items()}
        scores = {name: Score(one["psnr"], priors[name]["psnr"]) for name, one in measures.items()}
        mine = {name: scores[name] for name in self.attacks if name in scores}
        controls = {name: one for name, one in scores.items() if name not in mine}
        last = next((name for name in self.attacks[::-1] if name in mine), None)
        facts = {} if last is None else self._facts(last, pairs[last], measures, priors[last])
        return QuestionRun(mine, controls, answer["unsuited"], facts)

    def _paired(self, found: Tensor, names: Sequence[str]) -> tuple[Tensor, Tensor, tuple[str, ...]]:
        """What was found beside the truth: by name, or where there are none in the order that flatters most."""
        if names:
            rows = [at for at, name in enumerate(names[: len(found)]) if name in self.truths]
            whose = tuple(names[at] for at in rows)
            return self._shaped(found[rows]), self._shaped(torch.cat([self.truths[one] for one in whose])), whose
        clients = tuple(self.truths)
        guess, true = self._shaped(found), self._shaped(torch.cat(list(self.truths.values())))
        at, of = matched(guess, true)
        return guess[at], true[of], tuple(clients[one] for one in of.tolist())

    def _shaped(self, records: Tensor) -> Tensor:
        return records.reshape(-1, *self.scene.shape)

    def _measured(self, found: Tensor, true: Tensor, whose: Sequence[str]) -> dict[str, float]:
        shape = self.scene.shape if self.scene.is_picture else None
        lines = [like(one, two, shape, self.judge) for one, two in zip(found, true, strict=True)]
        return {name: sum(line[name] for line in lines) / len(lines) for name in lines[0]}

    def _prior(self, count: int, names: Sequence[str]) -> dict[str, float]:
        """The public average; where the order is free also as many kinds of public records, if these come nearer."""
        mean = self.scene.public.mean(0, keepdim=True)
        tries = [mean.expand(count, *mean.shape[1:])]
        if not names and count > 1:
            tries.append(self.scene.centres(count))
        return max((self._measured(*self._paired(one, names)) for one in tries), key=lambda one: one["psnr"])

    def _facts(
        self, last: str, pair: tuple[Tensor, Tensor, tuple[str, ...]], measures: Mapping[str, Mapping[str, float]],
        prior: Mapping[str, float],
    ) -> dict[str, Any]:  # fmt: skip
        units = {"psnr": "PSNR (dB)", "ssim": "SSIM", "lpips": "LPIPS"}
        rows = [[TITLES[name], *(round(value, 3) for value in one.values())] for name, one in measures.items()]
        rows.append(["without a view: public records", *(round(value, 3) for value in prior.values())])
        heads = ["attack", *(units[key] for key in prior)]
        table = {"title": "how like the records", "heads": heads, "rows": rows}
        facts: dict[str, Any] = {"tables": [table], "sentences": [WORST]}
        if self.scene.is_picture:
            mean = self.scene.public.mean(0).reshape(self.scene.shape)
            said = ("the record", "reconstructed", "the public average")
            for guess, true, who in sorted(zip(*pair, strict=True), key=lambda one: one[2])[:SHOWN]:
                strip = [{"says": says, "png": png(one)} for says, one in zip(said, (true, guess, mean), strict=True)]
                facts.setdefault("pictures", []).append({"title": f"one record of {who}", "pictures": strip})
        return facts


def unreadable(made: Assembled) -> str:
    """Why single records are not inverted in this task; nothing where they are."""
    if not isinstance(made.task.fit, Learner) or made.dataset.worded:
        return "records that are no quantities, or that training does not show, are not inverted"
    if not is_felt(made.module, made.dataset.test.batch(torch.arange(1))[0]):
        return "the network's outputs have no gradient in its inputs, by which records are searched for"
    return ""


class Reconstruction(Question, use="reconstruction"):
    """What a client's record looks like, in the worst case: everybody took one step on one record."""

    asks: ClassVar[str] = "What did the record look like?"
    learns: ClassVar[str] = "what records look like"
    gains: ClassVar[str] = "records come out {n} nearer to the truth than a public average"
    worst: ClassVar[str] = "where everybody takes one step on one record (clients that train longer tell less)"
    unit: ClassVar[Unit] = "dB"
    titles: ClassVar[Mapping[str, str]] = TITLES
    # Where records must be searched for, a seed takes long.
    seeds: ClassVar[int] = 8

    def unfit(self, bench: Bench, arm: Arm) -> str:
        """Why records are not inverted: they are words, or training does not show the network."""
        return unreadable(bench.stage(arm).made)

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """On one more round, from the first model."""
        stage = bench.stage(arm)
        scene = bench.once(("records", stage.setting), lambda: Scene(stage))
        steps = single_steps(stage.made, bench.coins.child("single steps"))
        # What came of a round clients are handed in the next one.
        waits = any(party.startswith("client") for who in adversaries for party in who.parties)
        played = bench.play(arm, steps, 2 if waits else 1)
        if not played.rounds:
            raise Unsuited("no round of single steps was held: too few clients could take part")
        shown = [who for who in adversaries if 0 in played.shown_to(who)]
        looks = {who.key: _look(bench, arm, who, scene, played, steps) for who in shown}
        # Of a large federation nobody may come twice running.
        left = {who.key: scene.attacks(shows(arm.pipeline, who).kind) for who in adversaries if who not in shown}
        unseen = {key: QuestionRun(not_run=dict.fromkeys(attacks, UNSEEN)) for key, attacks in left.items()}
        return lambda: {key: one.trial() for key, one in looks.items()} | unseen

    def words(self, gain: Rate, attack: str = "") -> str:
        """A gain in words, on one scale for all data."""
        if not gain.low > 0:
            return super().words(gain, attack)
        how = next(word for least, word in SCALE if gain.rate >= least)
        return f"records come out {how}: {self.shown(gain.rate)} nearer to the truth than a public average"

    def shown(self, value: float) -> str:
        """To a tenth of a dB where that says anything."""
        return f"{value:.0f} dB" if abs(value) >= 10 else f"{value:.1f} dB"


def _look(
    bench: Bench, arm: Arm, who: Adversary, scene: Scene, played: PlayedRounds, steps: SingleSteps
) -> ReconstructionAnswer:
    setting, kind = bench.chosen(arm), shows(arm.pipeline, who).kind
    attacks, single, views = scene.attacks(kind), scene.single(kind), played.seen_by(who, 0)
    alone = set[str]()
    if arm == bench.undefended and who == SERVER:
        every = {shows(other.pipeline, one).kind for other in bench.arms for one in bench.adversaries(other)}
        alone = {name for one in every - {"nothing"} for name in scene.attacks(one)} - {*attacks}
    asked = {
        "views": views, "start": played.starts[0], "protocol": arm.pipeline.plain(), "single": single,
        "attacks": attacks, "alone": tuple(sorted(alone)),
        "most": setting.depth.searched if scene.entrance == "none" else len(played.rounds[0].present),
        "coins": scene.stage.coins.child("attack", arm.node or arm.key, "reconstruction", who.key).export(),
    }  # fmt: skip
    shards = scene.stage.made.task.shards
    truths = {name: steps.drawn[shards[name]] for name in played.rounds[0].present if name not in views}
    judge = learned(setting.depth.lpips) if setting.depth.lpips else None
    heard = bench.panel.ask("reconstruction", scene.known(setting.depth.steps, len(truths)), asked)
    return ReconstructionAnswer(scene, heard, truths, attacks, single, judge)
