"""The fixed sentences of a report: who attacks with what knowledge, and how its numbers are to be read.

They stand in the report, so that a page can be judged without this project's documentation at hand. `audit.described`
puts them into the report of a description, those on `--fast` and on a poor model only where they apply, and
`audit.recorded.audited` its own ones into that of recorded updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from croupier.audit.report.read import Lenient, better
from croupier.audit.setting import Setting
from croupier.learn.data import Dataset

PRIOR = "The prior is the best attack with the same knowledge and no view. "


def threat(shadow: float) -> str:
    """Who attacks, and what it knows."""
    return (
        "Adversaries are honest but curious: they follow the protocol and keep all that they see. Unless a question "
        "says otherwise, they know that the records they are asked about were trained on in the round, and hold, for "
        f"every client of the round, a shadow set of {shadow:.1%} of its records (two at least), drawn from the same "
        "distribution and not trained on. A coalition puts the views of its parties together; one that the protocol "
        "forbids is shown as a what-if and decides no verdict."
    )


def no_better(data: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """A sentence for a model that does no better than always naming the commonest class; nothing for others."""
    if not (how := better(Lenient(data), Lenient(row))):
        return []
    model, alike = f"{row['accuracy']:.1%}", f"always answering class {data['commonest']} ({data['share']:.1%})"
    return [f"The model ({model}) is {how} than {alike}: it learnt little, so little can be learnt from it."]


def shorter(described: int, setting: Setting) -> list[str]:
    """What --fast leaves out of a long run."""
    played = setting.plan.rounds
    said = f"--fast: {played} of the {described} rounds that are described were played; more rounds may tell more."
    return [said] if played < described else []


def fewer(whole: Dataset, setting: Setting) -> list[str]:
    """What --fast leaves out where the data are large."""
    depth, train, test = setting.depth, len(whole.train), len(whole.test)
    return [
        f"--fast: {depth.train} of {train} training records were drawn, anew for each run, and "
        f"{min(depth.test, test)} of {test} test records. Clients hold fewer records than yours, and may tell "
        "more of each: for your own sizes repeat it without --fast.",
        f"--fast: {setting.records} records of each client are asked about, not 100, and adversaries train "
        f"{depth.models} models themselves, not 16. Malicious clients flip labels or replace the model, and try "
        "neither noise nor a backdoor that is sent once. Naive shuffles are compared only where --against names them.",
    ]


def notes(runs: int) -> list[str]:
    """How the numbers of independent runs are to be read."""
    return [
        f"Intervals are 95 %, over {runs} independent runs: records of one run share its models. Those of shares are "
        "Student's, widened as though two more runs had been seen, because most gains are 0 and few runs often agree "
        "by chance. How often they hold: croupier bench coverage.",
        "A verdict looks at the attack that was named in advance (the last one listed), by its 95 % interval, and at "
        "the others by intervals that hold for all of them together with 95 % (Bonferroni). How often defences that "
        "leak nothing are accused: croupier bench accuse.",
        f"{PRIOR}Success above chance is not yet a leak: judge by the gain over the prior.",
        "An attack's control is what it comes to on undefended updates. One that does not work there is not scored. Of "
        "source the bar is 1/n, which is low: what shadow sets tell carries some attacks over it. Judge by the gain.",
        "Recommended is, of protocols that surely lessen a leak (the interval lies below yours), are proved not to "
        "have it or show no rows to link, open none, and do not lack a privacy threshold that yours has: the one where "
        "fewest of your leaks are found or unanswered, then with the smallest worst case, then that surely closes "
        "most, if any at 5 points of accuracy at most; of several the most accurate, then the cheapest.",
        "Means are over all rounds; the best round is never shown alone. Ties are broken at random.",
        "Attacks that find nothing prove nothing. What a protocol is proved to hide, croupier explain says.",
    ]


RECORDED_THREAT = (
    "The server is honest but curious: it follows the protocol and keeps what it sees, as updates.toml says. It knows "
    "that the records it is asked about were trained on in the round, and holds the shadow sets that the shadow "
    "function gives."
)


def recorded_notes(clients: int) -> list[str]:
    """How the numbers of one recorded run are to be read."""
    return [
        f"One run was recorded. Intervals are 95 % over its {clients} clients (Student's, widened for shares as though "
        "two more had been seen): a client's records share its model, so that they count as one. They say how the "
        "result would vary with other clients of the same kind, not how it would with another start, another order of "
        "training or other noise: record several runs for that, and audit each.",
        "Clients of one run share joint models, and a record that is traced to one is not traced to another: the "
        "intervals take clients for independent, and are a little too sure where few took part.",
        f"{PRIOR}Judge by the gain over the prior.",
        "An attack's control is what it comes to on the recorded updates seen by name, where each client's was "
        "recorded, and elsewhere on what is audited itself. One that does not work there is not scored.",
        "Other questions are not asked of recorded updates: describe the protocol in a TOML file, and croupier audit "
        "plays it. Attacks that find nothing prove nothing.",
    ]
