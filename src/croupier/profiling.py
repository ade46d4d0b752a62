"""A profile audit from a description to findings: what views tell of clients, and whether rounds link."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from croupier.audit import denoise, sights
from croupier.audit.profile import LOUD, NOISES, Seed, Setting, Watch, part, run
from croupier.audit.report.result import Reported
from croupier.audit.score import Rate, gain, over_runs, share
from croupier.core.coins import Coins
from croupier.errors import SpecError, nearest, option
from croupier.learn.assemble import assemble
from croupier.learn.data import folder_of
from croupier.learn.datasets.households import Households
from croupier.learn.own import records
from croupier.learn.split import Natural, Split
from croupier.privacy.tiers import Tiers
from croupier.release.bucketed import Tiered
from croupier.runtime.kept import Kept, deciding
from croupier.runtime.local import Local
from croupier.spec import Sets, Source, Spec, counted, load

# The denoiser that verdicts look at, named in advance.
FIRST = "wiener"
ROW, BUCKET = "linked to its owner's row (centred)", "linked to its owner's bucket (centred)"

PAPER: dict[str, dict[str, Any]] = {
    "Table 1": {
        "about": "the paper does not say on which data set, model or budgets",
        "heads": ["method", "cosine", "linkage", "linear separability"],
        "rows": [["no denoising", 0.12, 0.18, 0.20], ["epsilon-aware denoising", 0.45, 0.76, 0.68]],
    },
    "Table 2": {
        "about": "the paper does not say on which data set or model, nor how many classes there are",
        "heads": ["defence", "CosAUC", "delta-cos", "surrogate accuracy", "ARI"],
        "rows": [
            ["no shuffling + DP", 0.42, 0.21, 0.78, 0.41],
            ["Shuffle-DP", 0.36, 0.18, 0.69, 0.30],
            ["IntraShuffler", 0.15, 0.05, 0.33, 0.06],
        ],
    },
    "Table 5": {
        "about": "surrogate accuracy by budget; the paper does not say on which data set or model",
        "heads": ["budget", "no shuffling + DP", "Shuffle-DP", "IntraShuffler"],
        "rows": [
            ["epsilon <= 1", 0.41, 0.38, 0.32],
            ["1 < epsilon <= 4", 0.63, 0.55, 0.34],
            ["epsilon > 4", 0.81, 0.72, 0.36],
        ],
    },
    "Table 10": {
        "about": "London households, LSTM",
        "heads": ["shuffling", "cosine", "inference accuracy"],
        "rows": [["layer-wise", 0.41, 0.62], ["parameter-level", 0.12, 0.28]],
    },
}


# With fewer runs an interval says next to nothing.
LEAST_RUNS = 4


@dataclass(frozen=True, repr=False)
class Profile(Reported):
    """The result of a profile audit."""

    def page(self) -> str:
        """The report, as one HTML document that needs nothing else."""
        from croupier.audit.report.profile import render

        return render(self.plain)


def setting_of(spec: Spec, folder: Path | None = None) -> Setting:
    """What a description says. Households that are not clients are the attacker's. Raises: SpecError without tiers."""
    privacy, release, task = spec.protocol.privacy, spec.protocol.release, spec.task
    if not isinstance(privacy, Tiers):
        raise SpecError(
            f"protocol.privacy = {privacy.use!r}: a profile audit asks what noise by tiers hides; use 'tiers', or "
            f"{option('kind')} source"
        )
    data, split = task.data, task.split
    if isinstance(data, Households) and data.households is not None:
        clients: Split = Natural(clients=data.households)
        data, split = data.model_copy(update={"households": None}), clients
    smallest = release.smallest if isinstance(release, Tiered) else 8
    return Setting(
        data, split, task.model, task.fit, spec.federation, privacy, smallest, together=task.together, folder=folder,
        device=spec.run.device, workers=spec.run.workers or os.cpu_count() or 1, loss=task.loss,
    )  # fmt: skip


def profile(
    source: Source = "intra-london",
    *,
    sets: Sets = (),
    seeds: int = 5,
    seed: int = 0,
    noises: Sequence[str] = NOISES,
    data: str | Path | None = None,
    watch: Watch = lambda _: None,
    kept: Kept | None = None,
) -> Profile:
    """Audit a description with tiers under every noise and view: what are clients like, and do rounds link?

    source: what `croupier.run` takes: a preset's name, a TOML file, a table or a `Spec`.
    sets: keys of the description to change, as `{"federation.rounds": 2}` or `["federation.rounds=2"]`.
    seeds: how many independent runs intervals are over, 2 or more.
    seed: the first run's; the others count on from it.
    noises: which noises are compared; all that there are when not said.
    data: the data folder; CROUPIER_DATA does the same.
    watch: called with a line now and then, as runs end.
    kept: where finished seeds go; what is there is not done again.

    Raises: SpecError, DataError; StoreError where seeds cannot be kept.
    """
    if seeds < 2:
        raise SpecError(f"{option('seeds')} = {seeds}: intervals are over runs; ask for at least 2")
    if unknown := [name for name in noises if name not in NOISES]:
        raise SpecError(f"noises = {list(noises)}: there is no noise {unknown[0]!r}; {nearest(unknown[0], NOISES)}")
    spec = load(source, sets, count=counted(data))
    setting = setting_of(spec, folder_of(data))
    numbers = range(seed, seed + seeds)
    shelf = Kept() if kept is None else kept
    shelf.begin(
        f"{spec.name}-profile", _deciding(spec, setting, seed, noises), [part(number) for number in numbers], "seeds"
    )
    found = run(setting, numbers, Local(), noises=noises, watch=watch, kept=shelf)
    return Profile(findings(spec, setting, numbers, found))


def _deciding(spec: Spec, setting: Setting, seed: int, noises: Sequence[str]) -> dict[str, Any]:
    """All that decides a seed's result; data that cannot be had are refused here, before anything is begun."""
    made = assemble(
        setting.data, setting.split, setting.model, setting.fit, Coins.from_seed(seed), folder=setting.folder,
        device=setting.device,
    )  # fmt: skip
    plain = spec.plain()
    described = {key: plain[key] for key in ("task", "federation", "protocol")}
    more = {"kind": "profile", "noises": list(noises), "device": setting.device, "own": records(spec)}
    return deciding(described, made.dataset.digest, made.task.first.vector, seed, **more)


def findings(spec: Spec, setting: Setting, seeds: Sequence[int], found: Sequence[Seed]) -> dict[str, Any]:
    """Everything as plain values, with intervals over runs."""
    first = found[0]
    made = arms(found)
    return {
        "kind": "croupier profile audit",
        "name": spec.name,
        "task": spec.plain()["task"],
        "federation": spec.plain()["federation"],
        "protocol": spec.plain()["protocol"],
        "clients": first.clients,
        "auxiliary": first.outsiders,
        "cohort": setting.plan.cohort or first.clients,
        "rounds": setting.plan.rounds,
        "runs": len(found),
        "seeds": list(seeds),
        "smallest_bucket": setting.smallest,
        "bucket_sizes": {str(size): first.buckets.count(size) for size in sorted(set(first.buckets))},
        "attributes": {
            key: {"title": one.title, "classes": list(one.classes), "chance": 1 / len(one.classes)}
            for key, one in first.attributes.items()
        },
        "denoisers": {name: denoise.TITLES[name] for name in denoise.DENOISERS},
        "judged_by": FIRST,
        "epsilons": {name: [list(one.epsilons[name]) for one in found] for name in first.epsilons},
        "arms": made,
        "sentences": [_sentence(arm, list(first.attributes), len(found)) for arm in made],
        "adversaries": adversaries(min(one.uncovered for one in found)),
        "paper": PAPER,
        "threat": threat(first.clients, first.outsiders, setting.every),
        "notes": notes(len(found)),
    }


def arms(found: Sequence[Seed]) -> list[dict[str, Any]]:
    """One object for each noise and view, with every denoiser's marks; those on no noise and no shuffling first."""
    keys = list(dict.fromkeys((one.noise, one.view) for one in found[0].found))
    made = [_arm(noise, view, found) for noise, view in keys]
    control = next((arm for arm in made if (arm["noise"], arm["view"]) == ("no noise", "rows")), None)
    for arm in made:
        for name, measures in arm["denoisers"].items():
            for measure, mark in measures.items():
                mark["control"] = _control(control, name, measure)
    return made


def _arm(noise: str, view: sights.View, found: Sequence[Seed]) -> dict[str, Any]:
    by = [{one.denoiser: one for one in seed.found if (one.noise, one.view) == (noise, view)} for seed in found]
    marks = {
        name: {measure: _mark([each[name] for each in by], measure) for measure in one.marks}
        for name, one in by[0].items()
    }
    return {"noise": noise, "view": view, "title": sights.TITLES[view], "denoisers": marks}


def _mark(runs: Sequence[Any], measure: str) -> dict[str, Any]:
    known = [run for run in runs if measure in run.marks]
    if len(known) < 2:
        return {"rate": None}
    values = [run.marks[measure] for run in known]
    # Shares of clients or values that are named right tie often; cosines vary smoothly.
    ties = any(word in measure for word in ("named right", "linked", "given to"))
    said: dict[str, Any] = asdict((share if ties else over_runs)(values))
    if all(measure in run.prior for run in known):
        priors = [run.prior[measure] for run in known]
        said["prior"] = math.fsum(priors) / len(priors)
        above = [value - prior for value, prior in zip(values, priors, strict=True)]
        said["above"] = asdict((gain if ties else over_runs)(above))
    return said


def headline(measure: str) -> str:
    """The measure whose control stands for this one: groups and tiers are parts of a whole."""
    if measure.startswith(("cosine at", "CosAUC", "delta-cos", "cosine best")):
        return "cosine"
    return measure.split(", ")[0] if ": clients named right" in measure else measure


def _control(arm: Mapping[str, Any] | None, denoiser: str, measure: str) -> bool | None:
    """Whether it lies above its prior without noise and shuffling; None where it is not mounted there."""
    mark = (arm or {"denoisers": {}})["denoisers"].get(denoiser, {}).get(headline(measure))
    return None if mark is None or "above" not in mark else mark["above"]["low"] > 0


def _sentence(arm: Mapping[str, Any], attributes: Sequence[str], runs: int) -> str:
    """What the denoiser that was named in advance found under one noise and view."""
    marks = arm["denoisers"][FIRST]
    link = ROW if ROW in marks else BUCKET
    named = {key: f"{key}: clients named right" for key in attributes}
    asked = {"centred cosine of updates": "cosine centred", **named, "links": link}
    if runs < LEAST_RUNS:
        few = f"not judged: {runs} runs are too few; ask for {LEAST_RUNS} or more"
        return f"{arm['noise']}, {arm['title']}: {few}."
    said = []
    for what, measure in asked.items():
        mark = marks.get(measure)
        if mark is None or "above" not in mark:
            continue
        if mark["control"] is False:
            said.append(f"{what}: not scored (the attack fails its control)")
            continue
        above = Rate(**mark["above"])
        word = "more than the prior" if above.low > 0 else "not shown to be more than the prior"
        said.append(
            f"{what}: {mark['rate']:.3f} against {mark['prior']:.3f}, {word} "
            f"({above.rate:+.3f}, {above.low:+.3f} to {above.high:+.3f})"
        )
    return f"{arm['noise']}, {arm['title']}: {'; '.join(said)}."


def adversaries(uncovered: float) -> list[str]:
    """Who else may attack, and which of the views is theirs."""
    return [
        "The server sees what each view shows, and knows the auxiliary clients.",
        "The shuffler alone sees every row with its name and tier, so it links rounds by name with success 1 (by "
        "values alone as 'as received' under 'no shuffling' does). Without auxiliary data it infers no attribute; with "
        "public data of the same kind it is as strong as the server under 'no shuffling'. That it has none is an "
        "assumption about its library, not a protection.",
        "Shuffler and server together have the view 'no shuffling', and the names: what remains is each client's own "
        "noise.",
        "All other members of a bucket, with the server, take their own values out of the shuffle or the sum: "
        f"{uncovered:.0%} of the rows tried came out of parameter shuffling bit for bit. They too have the view "
        "'no shuffling' of the last member: its own noise remains, and nothing of the shuffle.",
    ]


def threat(clients: int, outsiders: int, every: int) -> str:
    """Who attacks, and what it knows."""
    return (
        "The server is honest but curious. It knows the protocol, the models it handed out, all public tiers, "
        "who is in which bucket, and what its view shows of each round. It also holds the records of "
        f"{outsiders} auxiliary clients, who are none of the {clients} attacked, and trains them itself from the model "
        f"of every {every}th round. It knows no client's records, no clean update and nothing of the shuffle's coins."
    )


def notes(runs: int) -> list[str]:
    """How the numbers are to be read."""
    return [
        f"Intervals are 95 %, Student's t over {runs} runs, each by itself: of twenty true nulls one is expected "
        "outside. Those of shares of clients, links and values are widened as though two more runs had been seen, "
        "because shares of few runs often tie (croupier bench coverage). Clients that come with the data, and their "
        "tiers, are the same in all runs: intervals are over trainings, cohorts and noise.",
        "Training is by the plain mean, whatever protocol.aggregate says.",
        "All views of one noise are of one training: every client counts alike, so the mean does not depend on the "
        "order of rows, and differences are differences of views. At equal noise plain, Shuffle-DP and IntraShuffler "
        "give the same model up to rounding.",
        "Cosine: between a denoised row and the clean update of the row's owner, the client from whom most of its "
        "coordinates come; a bucket's mean against each of its members. Prior: the auxiliary clients' mean update, "
        "without any view. All updates share a direction, so a denoiser that ignores the row has a high cosine "
        "already: judge by what is above the prior, or by the centred cosine, which takes the round's mean of clean "
        "updates off both. 'Best of bucket' takes the most alike member, which favours the attacker.",
        "CosAUC: the area under the cosine over tiers, at ln(epsilon) scaled to run from 0 to 1 (declared budgets); "
        "delta-cos: the cosine of the largest budget less that of the smallest.",
        "Attributes are cut at quantiles of the auxiliary clients. 'Clients named right': from a client's own row "
        "if it has its name, else from all rows of its bucket together. 'Rows named right', the paper's reading: each "
        "row against its owner. Prior: the auxiliary clients' commonest class, or a guess at random where that names "
        "more.",
        "Linear separability is a measurement with the true labels, not an attack: five-fold logistic regression, all "
        "rows of a client in one fold; beside it the share of the commonest class.",
        "Linkage: nearest neighbour by cosine among rows of the nine rounds before with a tier that may be the same. "
        "By values only: names and rosters are left out, as the paper does; where rows have names it is 1 by the name. "
        "Centred: around the auxiliary mean. Prior: a candidate picked at random. For bucket means only the bucket is "
        "asked for.",
        f"'{LOUD}': all tiers' deviations times one factor, at which updates as received have a mean cosine of 0.12 "
        "with the clean ones, as the paper's Table 1 has without denoising. The epsilons this really gives are "
        "printed; they promise next to nothing.",
        "A measure that is not above its prior without noise and shuffling fails its control, and scores no defence.",
        "Attacks that find nothing prove nothing: for what a protocol is proved to hide, ask croupier explain.",
    ]
