"""What an audit asks, of which protocol (an arm) and which adversary, and what one run of it comes to.

Every question in `audit.questions` derives from `Question`, and so does one of a user's own (see CONTRIBUTING.md).
`audit.harness` plays them, `audit.verdict` judges their runs, and `audit.described` finds the adversaries of a protocol
here: every party alone, and the coalitions that its statement forbids.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from croupier.audit.seen import Kind, shows
from croupier.audit.setting import Setting
from croupier.core.intervals import Rate
from croupier.core.part import Part
from croupier.errors import SpecError, nearest, option
from croupier.pipeline import Pipeline

if TYPE_CHECKING:
    from croupier.audit.bench import Bench

# What a value is: a share of cases, decibels, a cosine, bits a parameter. It decides how intervals are made and shown.
Unit = Literal["share", "dB", "cosine", "bits"]
NETWORK = "network"
UNSEEN = "it sees nothing of a round before the next one"
# No adversary can link clients by a sum of everybody: `audit.judgement` counts a leak by linkage as closed there.
NO_ROWS = "a sum of everybody has no rows to link"


@dataclass(frozen=True)
class Arm:
    """A protocol that is audited.

    `key` names it in files; `changes` are parts of the setting that are others under it; `node` labels the coins of
    attacks on it; `own` marks the description's own protocol; `about` says which compared protocol it is nearest to.
    """

    key: str
    title: str
    pipeline: Pipeline
    changes: tuple[tuple[str, Any], ...] = ()
    node: str = ""
    own: bool = False
    about: str = ""

    def applied(self, setting: Setting) -> Setting:
        """The setting under this arm."""
        changes: dict[str, Any] = dict(self.changes)
        return replace(setting, **changes)


@dataclass(frozen=True)
class Adversary:
    """Parties that put their views together.

    A coalition that the protocol's statement forbids is `forbidden`: it is shown as a "what if" and decides no verdict.
    """

    parties: tuple[str, ...]
    forbidden: bool = False

    @property
    def key(self) -> str:
        """Its name in files and on the command line."""
        return "+".join(self.parties)


SERVER = Adversary(("server",))
# A share of the clients, who need not follow the protocol.
MALICIOUS = Adversary(("malicious",))


@dataclass(frozen=True)
class Score:
    """One run of one attack: what it came to, and the same adversary's best guess without a view.

    A higher `value` than `prior` is a leak, or damage done. `rounds` are the values by round, where there are several.
    When an attack is mounted on undefended updates to see whether it works (its control), its value must lie above
    `bar`, where that is given, and above its prior elsewhere.
    """

    value: float
    prior: float
    rounds: Mapping[int, float] = field(default_factory=dict)
    bar: float | None = None


@dataclass(frozen=True)
class QuestionRun:
    """One run of a question on one adversary: scores by attack, the one that a verdict trusts most last.

    `not_run` says why attacks were not run; `facts` are plain values to show beside (pictures as PNG text, tables).
    `controls` are attacks on other arms, mounted on undefended updates to see whether they work at all.
    """

    scores: Mapping[str, Score] = field(default_factory=dict)
    controls: Mapping[str, Score] = field(default_factory=dict)
    not_run: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


# What `Question.play` returns: called later, it waits for the attacks to answer and gives the runs by adversary.
Promise = Callable[[], Mapping[str, QuestionRun]]


class Question(Part):
    """One question of an audit, as a part that goes by its name.

    `asks` is the question in words; `gains` says what a point above the prior means to a reader; `titles` names its
    attacks. `failed` is said where no attack works even on undefended updates.
    """

    verb: ClassVar[str] = "question"
    lies_in: ClassVar[str] = "croupier.audit.questions"
    asks: ClassVar[str]
    # What an adversary learns, or malicious clients break, where it leaks: for sentences.
    learns: ClassVar[str]
    gains: ClassVar[str]
    unit: ClassVar[Unit] = "share"
    titles: ClassVar[Mapping[str, str]]
    # What is not as the description trains, where it is asked of the worst case: that alone condemns no protocol.
    worst: ClassVar[str] = ""
    # Who attacks, where that is not one of the curious parties.
    by: ClassVar[Adversary | None] = None
    failed: ClassVar[str] = "no attack passed its control: none works even on undefended updates"
    # Fewer runs than others where one takes long: at most so many seeds are asked.
    seeds: ClassVar[int] = 1000
    # What an adversary sees that leaves it nothing to attack with.
    blank: ClassVar[tuple[Kind, ...]] = ("nothing",)

    def unfit(self, bench: Bench, arm: Arm) -> str:
        """Why it cannot be asked of this task or protocol; nothing where it can."""
        return ""

    def unseen(self, bench: Bench, arm: Arm, adversary: Adversary) -> str:
        """Why this adversary has nothing to attack with; nothing where it has."""
        found = None if self.by else shows(arm.pipeline, adversary)
        return found.why if found and found.kind in self.blank else ""

    @abstractmethod
    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """Play what is needed from one seed, and hand what adversaries see to attacks in a process of their own."""

    def facts(self, trials: Sequence[QuestionRun]) -> dict[str, Any]:
        """What to show beside: the first run's, where a question does not put all runs together."""
        return dict(trials[0].facts)

    def about(self) -> dict[str, Any]:
        """What a report says of it, whatever is found."""
        return {
            "asks": self.asks, "learns": self.learns, "gains": self.gains, "unit": self.unit,
            "worst_case": self.worst, "attacks": dict(self.titles),
        }  # fmt: skip

    def words(self, gain: Rate, attack: str = "") -> str:
        """A gain of an attack as a reader would say it: a leak only where the whole interval lies above 0."""
        if gain.high <= 0:
            return "no leak found: looking did not help"
        if not gain.low > 0:
            most = f"{self.shown(gain.high)}{' points' if self.unit == 'share' else ''}"
            return f"no leak found; if there is one, it is at most {most} (95 %)"
        return self.gains.format(n=self.shown(gain.rate))

    def shown(self, value: float) -> str:
        """A value in its unit."""
        return f"{round(100 * value)}" if self.unit == "share" else f"{value:.2g} {self.unit}"


def adversaries(pipeline: Pipeline) -> tuple[Adversary, ...]:
    """Every party alone, the server first; then the coalitions that the protocol forbids."""
    alone = (Adversary((party,)) for party in (*pipeline.place.middle(pipeline), "client", NETWORK))
    return (SERVER, *alone, *(Adversary(parties, forbidden=True) for parties in pipeline.place.breaks))


def parse(text: str, pipeline: Pipeline) -> Adversary:
    """An adversary from its parties' names, joined by "+".

    Raises: SpecError on a party that the protocol does not have, and where the network is joined with others.
    """
    # In the order in which adversaries name them; "clients" only where they matter together.
    several = (party for parties in pipeline.place.breaks for party in parties)
    known = tuple(dict.fromkeys(("server", *pipeline.place.middle(pipeline), "client", *several, NETWORK)))
    asked, at = [word.strip() for word in text.split("+")], f"{option('adversary')} = {text!r}"
    if strange := [word for word in asked if word not in known]:
        said = nearest(strange[0], known)
        meant = said if said.startswith("known") else f"{said} It has {', '.join(known)}"
        raise SpecError(f"{at}: this protocol has no party {strange[0]!r}; {meant}")
    if NETWORK in asked and set(asked) != {NETWORK}:
        raise SpecError(f"{at}: the network sees nothing of updates that others do not; leave it out")
    parties = tuple(party for party in known if party in asked)
    return Adversary(parties, any(set(parties) >= set(apart) for apart in pipeline.place.breaks))
