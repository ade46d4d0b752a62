"""How often an audit accuses a defence that leaks nothing: real small audits of updates that are drowned in noise.

An audit that accuses at random would be worthless, and its rate of false alarms can only be measured where there is
nothing to find. Verdicts are those of `croupier.audit.verdict`, by which `croupier audit` judges.
`croupier bench accuse` runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from croupier.audit.bench import Bench
from croupier.audit.blind import Panel
from croupier.audit.question import SERVER, QuestionRun
from croupier.audit.questions.source import Source, attack, traced
from croupier.audit.setting import Setting
from croupier.audit.verdict import cell
from croupier.encode.floats import Floats
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Dirichlet
from croupier.pipeline import Pipeline
from croupier.privacy.gaussian import Gaussian
from croupier.systems import naive, plain
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.source_inference.experiment import UNSHUFFLING, Defence
from croupier_lab.source_inference.table import controlled

# Noise a thousand times as long as the update in every single coordinate: no attack can find anything below it.
DROWNED = Gaussian(clip=1.0, sigma=1000.0)


class FalseAlarmsSize(BenchSize):
    """How many audits, runs of each, and clients; `alphas` say in turn how alike the clients' labels are."""

    audits: int = Field(200, ge=1, description="Audits of updates that are drowned in noise.")
    runs: int = Field(4, ge=4, description="Runs of each audit.")
    clients: int = Field(4, ge=2)
    alphas: tuple[float, ...] = (0.1, 0.5)


def defences() -> list[Defence]:
    """The defences to judge: named and shuffled updates, drowned in noise; the first is the control, without noise."""
    named = ("named", "named+prior")
    control = Defence("none", plain("uniform"), named, ())
    hidden = [Defence("named, drowned", _noised(plain("uniform")), named, ())]
    for grain in ("model", "layer", "parameter"):
        hidden.append(Defence(f"{grain} shuffle", _noised(naive(grain)), UNSHUFFLING[grain], ()))
    return [control, *hidden]


def _noised(pipeline: Pipeline) -> Pipeline:
    return Pipeline(
        privacy=DROWNED, encode=Floats(form="delta", weights="uniform"), release=pipeline.release,
        aggregate=pipeline.aggregate, place=pipeline.place,
    )  # fmt: skip


def _setting(size: FalseAlarmsSize, alpha: float) -> Setting:
    return Setting(
        Digits(), Dirichlet(clients=size.clients, alpha=alpha, least=40), Mlp(hidden=(8,)),
        Sgd(lr=0.1, epochs=1, batch=32), Federation(rounds=1), records=25, suspects=False,
    )  # fmt: skip


def measure(size: FalseAlarmsSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Every audit's verdicts, counted: of single defences, and of whole audits that accuse any."""
    compared = defences()
    mounted = controlled(compared)
    found = []
    with Panel(1) as panel:
        for at in range(size.audits):
            watch(f"audit {at + 1} of {size.audits}")
            setting = _setting(size, size.alphas[at % len(size.alphas)])
            first = seed + at * size.runs
            played = [_trials(setting, mounted, number, panel) for number in range(first, first + size.runs)]
            found.append(_verdicts(compared, played))
    return {
        "audits": size.audits, "runs": size.runs, "clients": size.clients, "alphas": list(size.alphas),
        "verdicts": sum(len(one) for one in found),
        "judged": sum(said != "not-run" for one in found for said in one.values()),
        "accused": sum(said == "leak" for one in found for said in one.values()),
        "audits_that_accuse": sum("leak" in one.values() for one in found),
    }  # fmt: skip


def _trials(setting: Setting, mounted: Sequence[Defence], seed: int, panel: Panel) -> list[QuestionRun]:
    """Each defence from one seed, the control first."""
    bench = Bench(setting, seed, panel, Local(), membership=False)
    found = [attack(bench, one.arm, SERVER, one.attacks, (), one.control) for one in mounted]
    return [traced(one) for one in found]


def _verdicts(compared: Sequence[Defence], played: Sequence[Sequence[QuestionRun]]) -> dict[str, str]:
    """The verdict on each defence as an audit gives it, but for the control, which does leak."""
    by_defence = dict(zip((one.name for one in compared), zip(*played, strict=True), strict=True))
    control = by_defence.pop(compared[0].name)
    return {name: str(cell(Source(), trials, control)["status"]) for name, trials in by_defence.items()}


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    # Attacks that find too little in the control, too, judge nothing; with few audits that may be all of them.
    share = f" ({found['accused'] / found['judged']:.1%})" if found["judged"] else ""
    print(
        f"{found['audits']} audits of {found['runs']} runs, {found['clients']} clients, nothing to find: "
        f"{found['accused']} of {found['judged']} verdicts accuse{share}, in "
        f"{found['audits_that_accuse']} audits ({found['audits_that_accuse'] / found['audits']:.1%})."
    )
