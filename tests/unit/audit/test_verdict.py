"""From runs to a verdict: what counts as a leak, what is no advantage, and what is not said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from croupier.audit.harness import EVERYBODY, ArmAnswers
from croupier.audit.judgement import NOT_BETTER, judged
from croupier.audit.notes import no_better
from croupier.audit.question import MALICIOUS, NO_ROWS, QuestionRun, Score
from croupier.audit.questions.poisoning import Poisoning
from croupier.audit.questions.reconstruction import Reconstruction
from croupier.audit.questions.source import Source
from croupier.audit.questions.traits import Linkage, Traits
from croupier.audit.report.read import UNORDERED, UNTESTED, Lenient, remarks
from croupier.audit.verdict import asked, cell
from croupier.systems import plain, sum_servers

RUNS = 8
SERVER = {"server": False}


def trials(
    value: float, prior: float = 0.3, attack: str = "named+prior", bar: float | None = None
) -> list[QuestionRun]:
    """Runs that differ a little."""
    return [
        QuestionRun({attack: Score(value + 0.001 * (at % 3), prior + 0.001 * (at % 2), bar=bar)}) for at in range(RUNS)
    ]


def answers(found: Sequence[QuestionRun], question: str, key: str = "server") -> list[ArmAnswers]:
    return [ArmAnswers({question: {key: one}}) for one in found]


def row(name: str, accuracy: float, **cells: Any) -> dict[str, Any]:
    return {
        "defence": name, "measure": "accuracy", "accuracy": accuracy, "bytes_per_client": 100.0, "own": name == "own",
        "must_not_collude": [], "protocol": plain().plain(), "questions": cells,
    }  # fmt: skip


def source(value: float, **more: Any) -> dict[str, Any]:
    control = answers(trials(0.9), "source")
    return asked(Source(), answers(trials(value), "source"), control, more.get("who", SERVER), more.get("proved", {}))


def unfit(question: Any) -> dict[str, Any]:
    refused = [ArmAnswers({}, {question.use: {EVERYBODY: "it makes no sense here"}})] * RUNS
    return asked(question, refused, [], {**SERVER, "network": False}, {"network": "it sees nothing"})


def test_a_sure_gain_is_a_leak_and_none_is_none() -> None:
    assert source(0.9)["status"] == "leak"
    assert source(0.3)["status"] == "none-found"
    assert judged([row("own", 0.9, source=source(0.9))])["light"] == "red"
    assert judged([row("own", 0.9, source=source(0.3))])["light"] == "green"


def test_an_attack_that_nothing_shows_to_work_is_not_scored() -> None:
    found = cell(Traits(), trials(0.9, attack="dominant"), [])
    assert (found["status"], found["unsure"]) == ("not-run", True)
    # A question with a bar has a control of its own.
    assert cell(Source(), trials(0.9, attack="carries+prior", bar=0.1), [])["status"] == "leak"


def test_too_few_runs_are_said_to_be_so() -> None:
    found = cell(Source(), trials(0.9)[:3], trials(0.9)[:3])
    assert (found["status"], found["why"]) == ("not-run", "3 runs are too few to judge by; ask for 4 or more")
    assert judged([row("own", 0.9, source=source(0.3) | found | {"adversary": "server"})])["light"] == "amber"


def test_a_proof_outranks_a_control_that_failed_but_no_leak() -> None:
    proved = cell(Source(), trials(0.3), trials(0.0), "it is uniform")
    assert (proved["status"], proved["why"]) == ("proved", "it is uniform")
    assert cell(Source(), trials(0.9), trials(0.9), "it is uniform")["status"] == "leak"


def test_what_makes_no_sense_is_not_proved_to_anybody() -> None:
    found = unfit(Traits())
    assert {one["status"] for one in found["adversaries"].values()} == {"not-run"}


def test_a_wide_interval_is_no_green_light() -> None:
    wild = [QuestionRun({"named+prior": Score(0.3 + 0.5 * (at % 2), 0.5)}) for at in range(RUNS)]
    found = asked(Source(), answers(wild, "source"), answers(trials(0.9), "source"), SERVER, {})
    assert (found["status"], found["unsure"]) == ("none-found", True)
    assert judged([row("own", 0.9, source=found)])["light"] == "amber"


def test_a_forbidden_coalition_decides_nothing() -> None:
    key = "server+relay"
    control = answers(trials(0.9), "source")
    found = asked(Source(), answers(trials(0.9), "source", key), control, {key: True}, {})
    got = judged([row("own", 0.9, source=found)])
    assert got["light"] != "red"
    assert "would leak to server+relay, who must not collude" in " ".join([got["sentence"], *got["more"]])


def test_a_worst_case_and_malicious_clients_condemn_no_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Poisoning, "facts", lambda *_: {})
    sharp = answers(trials(90.0, 11.0, "read+prior"), "reconstruction")
    rebuilt = asked(Reconstruction(), sharp, sharp, SERVER, {})
    hit = answers(trials(0.9, 0.1, "backdoor"), "poisoning", MALICIOUS.key)
    broken = asked(Poisoning(), hit, hit, SERVER, {})
    got = judged([row("own", 0.9, source=source(0.3), reconstruction=rebuilt, poisoning=broken)], "5 of 20 clients")
    assert got["light"] == "amber"
    assert got["sentence"].startswith("No leak was found in own as it trains, in 1 of 3 questions.")
    assert any("worst case" in one for one in got["more"])
    assert "5 of 20 clients, if malicious, break what it learns." in got["more"]
    assert any(one["sentence"].startswith("5 of 20 clients break it: ") for one in got["against"])


def test_what_was_not_asked_is_no_advantage() -> None:
    own = row("own", 0.9, source=source(0.9))
    other = row("other", 0.9, source=unfit(Source()))
    assert judged([own, other])["recommend"]["defence"] is None
    better = row("better", 0.88, source=source(0.3))
    got = judged([own, other, better])["recommend"]
    assert got["defence"] == "better"
    assert got["accuracy"] == pytest.approx(-0.02)
    assert "closes 1 of 1 leak found: whose record it is" in got["sentence"]


def test_what_was_not_found_in_hidden_coordinates_closes_nothing_unless_they_were_tried() -> None:
    own = row("own", 0.9, source=source(0.9))
    hidden = row("hidden", 0.9, source=source(0.3)) | {"hidden_coordinates": True}
    got = judged([own, hidden])["recommend"]
    assert (got["defence"], got["sentence"]) == (None, NOT_BETTER)
    assert remarks(Lenient({}), Lenient(hidden)) == [UNORDERED]
    better = row("better", 0.88, source=source(0.3))
    assert judged([own, hidden, better])["recommend"]["defence"] == "better"
    tried = hidden | {"questions": {**hidden["questions"], "permutation": source(0.3)}}
    assert judged([own, tried])["recommend"]["defence"] == "hidden"
    assert remarks(Lenient({}), Lenient(tried)) == []
    put = hidden | {"questions": {**hidden["questions"], "permutation": source(0.9)}}
    assert judged([own, put])["recommend"]["defence"] is None
    assert remarks(Lenient({}), Lenient(put)) == [UNORDERED]


def linked(*values: float) -> dict[str, Any]:
    """Linkage whose runs take these values in turn, beside a control that works."""
    found = [QuestionRun({"linked": Score(values[at % len(values)] + 0.001 * (at % 3), 0.1)}) for at in range(RUNS)]
    control = [QuestionRun({"linked": Score(0.9, 0.1)})] * RUNS
    return asked(Linkage(), answers(found, "linkage"), answers(control, "linkage"), SERVER, {})


def test_a_sum_without_rows_closes_links_and_no_other_question() -> None:
    refused = [ArmAnswers({}, {"linkage": {"server": NO_ROWS}, "source": {"server": NO_ROWS}})] * RUNS
    none = asked(Linkage(), refused, [], SERVER, {})
    assert (none["status"], none["why"]) == ("not-run", NO_ROWS)
    got = judged([row("own", 0.9, linkage=linked(0.9)), row("sum", 0.9, linkage=none)])["recommend"]
    assert got["defence"] == "sum"
    assert "closes 1 of 1 leak found: which updates are one client's" in got["sentence"]
    other = [ArmAnswers({}, {"linkage": {"server": "one round was played"}})] * RUNS
    lost = asked(Linkage(), other, [], SERVER, {})
    assert (
        judged([row("own", 0.9, linkage=linked(0.9)), row("lost", 0.9, linkage=lost)])["recommend"]["defence"] is None
    )


def test_of_those_in_which_nothing_is_found_the_worst_case_decides_and_not_the_width_of_intervals() -> None:
    def one_step(value: float) -> dict[str, Any]:
        return source(value) | {"worst_case": "one step"}

    wide = linked(0.0, 0.4)
    assert wide["status"] == "none-found"
    own = row("own", 0.9, source=source(0.9), linkage=linked(0.5), reconstruction=one_step(0.9))
    closes = row("closes", 0.9, source=source(0.3), linkage=linked(0.1), reconstruction=one_step(0.8))
    little = row("little", 0.9, source=source(0.3), linkage=wide, reconstruction=one_step(0.4))
    assert judged([own, closes])["recommend"]["defence"] == "closes"
    got = judged([own, closes, little])["recommend"]
    assert got["defence"] == "little"
    assert "closes 1 of 2 leaks found: whose record it is" in got["sentence"]
    # One in which a leak of yours is found comes after both.
    leaky = row("leaky", 0.9, source=source(0.3), linkage=linked(0.5), reconstruction=one_step(0.3))
    assert judged([own, leaky, closes])["recommend"]["defence"] == "closes"


def test_what_costs_a_lot_is_recommended_for_leaks_alone() -> None:
    dear = row("dear", 0.4, source=source(0.3))
    got = judged([row("own", 0.9, source=source(0.9)), dear])["recommend"]
    assert got["defence"] == "dear"
    assert got["sentence"].startswith("Use dear only if what it closes is worth more than 5 points of accuracy to you.")
    cheap = judged([row("own", 0.9, source=source(0.9)), row("cheap", 0.88, source=source(0.3)), dear])["recommend"]
    assert cheap["sentence"].startswith("Use cheap. ")
    assert judged([row("own", 0.9, source=source(0.3)), dear])["recommend"]["sentence"] == "Keep your protocol."


def test_what_less_leaks_at_a_price_is_named_with_the_price() -> None:
    rare = source(0.9) | {"worst_case": "one step"}
    own, dear = row("own", 0.9, source=rare), row("dear", 0.4, source=source(0.3))
    said = judged([own, dear])["recommend"]["sentence"]
    assert said == "Keep your protocol: what leaks less costs over 5 points of accuracy: dear has 40.0%, yours 90.0%."


def test_why_a_leak_is_not_said_to_be_closed() -> None:
    own = row("own", 0.9, source=heard(spread(0.45, 0.05)), membership=source(0.9))
    own["questions"] |= {"linkage": heard(trials(0.9), "client"), "traits": heard(spread(0.45, 0.05))}
    own["questions"] |= {"separation": source(0.9)}
    close, wide = heard(spread(0.3, 0.1)), heard(spread(0.3, 0.4))
    other = row("other", 0.9, source=close, membership=source(0.3), linkage=source(0.3), traits=wide)
    refused = [ArmAnswers({}, {"source": {EVERYBODY: f"{UNTESTED}: the same clients take part"}})] * RUNS
    other["questions"]["separation"] = asked(Source(), refused, [], SERVER, {})
    learns = ("whose", "members", "links", "traits", "updates")
    for name, said in zip(own["questions"], learns, strict=True):
        own["questions"][name]["learns"] = said
    sentence = judged([own, other])["recommend"]["sentence"]
    assert "It closes 1 of 5 leaks found: members." in sentence
    assert "No leak found, but too few runs to say that it is less than yours: whose." in sentence
    assert "yours leaks to others, who did not attack it here: links." in sentence
    assert "Too few runs to tell: traits." in sentence
    assert "Not tested: updates (the same clients take part)." in sentence
    # The same reason is said once.
    own["questions"]["traits"]["learns"], other["questions"]["traits"] = "traits", close
    assert "less than yours: whose and traits." in judged([own, other])["recommend"]["sentence"]


def test_who_else_it_takes_and_who_must_not_collude_are_named() -> None:
    own, other = row("own", 0.9, source=source(0.9)), row("other", 0.9, source=source(0.3))
    servers = sum_servers(clients=10)
    apart = [["one sum server", "all the others"], ["relay", "server"]]
    said = judged([own, other | {"protocol": servers.plain(), "must_not_collude": apart}])["recommend"]["sentence"]
    assert "It takes 3 more parties: sum server 1, sum server 2 and sum server 3." in said
    first = "It rests on this: one sum server must not work together with all the others; "
    assert f"{first}the relay must not work together with the server." in said
    assert "more part" not in judged([own, other])["recommend"]["sentence"]
    both = [one | {"protocol": servers.plain()} for one in (own, other)]
    assert "more part" not in judged(both)["recommend"]["sentence"]


def test_how_many_questions_have_no_answer_is_said_beside_all_that_are_listed() -> None:
    got = judged([row("own", 0.9, source=source(0.9), membership=source(0.3), linkage=unfit(Source()))])
    assert got["sentence"].startswith("own leaks to the server, in 1 of 3 questions (1 without an answer): ")


def test_what_is_proved_of_the_network_takes_links_that_are_encrypted() -> None:
    refused = [ArmAnswers({}, {"source": {"network": "it sees nothing"}})] * RUNS
    found = asked(Source(), refused, [], {"network": False, "sum1": False}, dict.fromkeys(("network", "sum1"), "noise"))
    said = {one["adversary"]: one["sentence"] for one in judged([row("own", 0.9, source=found)])["against"]}
    assert said["network"] == "proved to see nothing of updates, provided that links are encrypted"
    assert said["sum1"] == "proved to see nothing of updates"


def test_malicious_clients_break_and_do_not_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Poisoning, "facts", lambda *_: {})
    hit, control = ([QuestionRun({"backdoor": Score(one + at % 2 / 2, 0.1)}) for at in range(RUNS)] for one in (0, 0.4))
    wild, sure = (answers(one, "poisoning", MALICIOUS.key) for one in (hit, control))
    found = asked(Poisoning(), wild, sure, SERVER, {})
    assert (found["status"], found["unsure"], found["words"]) == (
        "none-found",
        True,
        "too few runs, or clients, to tell",
    )
    (said,) = judged([row("own", 0.9, poisoning=found)])["against"]
    assert said["sentence"] == "the audit cannot tell if they break what is learnt"


@pytest.mark.parametrize(
    ("rate", "low", "said"),
    [(0.9, 0.9, "is no better than"), (0.901, 0.899, "is no better than"), (0.92, 0.89, "is not surely better than")],
)
def test_a_model_that_learnt_nothing_is_said_to_be_so(rate: float, low: float, said: str) -> None:
    data, found = {"test": 500, "commonest": 1, "share": 0.9}, row("own", rate) | {"accuracy_low": low}
    (one,) = no_better(data, found)
    assert f"The model ({rate:.1%}) {said} always answering class 1 (90.0%)" in one
    assert no_better(data, found | {"accuracy_low": 0.91}) == []
    assert no_better({"test": 500}, found) == []
    assert no_better(data, {"rmse": 0.3}) == []


def test_a_model_that_was_not_measured_breaks_nothing() -> None:
    own = row("own", 0.9, source=source(0.9)) | {"accuracy": None}
    assert judged([own, row("other", 0.9, source=source(0.3))])["recommend"]["defence"] is None


def spread(mean: float, half: float) -> list[QuestionRun]:
    """Runs that differ so much that their interval is wide."""
    return [QuestionRun({"named+prior": Score(mean + half * (-1) ** at, 0.3)}) for at in range(RUNS)]


def heard(found: Sequence[QuestionRun], key: str = "server") -> dict[str, Any]:
    return asked(Source(), answers(found, "source", key), answers(trials(0.9), "source"), {key: False}, {})


def test_an_interval_that_meets_ones_own_closes_nothing() -> None:
    own, close = heard(spread(0.4, 0.05)), heard(spread(0.3, 0.1))
    assert (own["status"], close["status"], close["unsure"]) == ("leak", "none-found", False)
    assert close["gain"]["high"] > own["gain"]["low"]
    got = judged([row("own", 0.9, source=own), row("close", 0.9, source=close)])["recommend"]
    assert got["defence"] is None
    assert "None that was compared is shown to be better" in got["sentence"]
    assert "more runs; noise by a privacy budget" in got["sentence"]
    own = heard(spread(0.6, 0.05))
    assert judged([row("own", 0.9, source=own), row("low", 0.9, source=source(0.3))])["recommend"]["defence"] == "low"


def test_a_leak_to_somebody_else_is_not_closed_by_what_the_server_sees() -> None:
    own, other = row("own", 0.9, source=heard(trials(0.9), "client")), row("other", 0.9, source=source(0.3))
    assert judged([own, other])["recommend"]["defence"] is None


@pytest.mark.parametrize("here", [source(0.3), unfit(Source())])
def test_what_opens_a_leak_is_not_recommended(here: dict[str, Any]) -> None:
    own = row("own", 0.9, membership=source(0.9), linkage=here)
    worse = row("worse", 0.9, membership=source(0.3), linkage=source(0.9))
    assert judged([own, worse])["recommend"]["defence"] is None
    worse["questions"]["linkage"] = source(0.3)
    assert judged([own, worse])["recommend"]["defence"] == "worse"


def test_what_lacks_a_privacy_threshold_is_recommended_only_to_who_has_none() -> None:
    some, none = ({"statement": {"privacy threshold": said}} for said in ("all servers but one", "none: it sees all"))
    own, other = row("own", 0.9, source=source(0.9)), row("other", 0.9, source=source(0.3))
    assert judged([own | some, other | none])["recommend"]["defence"] is None
    assert judged([own | none, other | none])["recommend"]["defence"] == "other"
    assert judged([own | some, other | some])["recommend"]["defence"] == "other"


def parties(**runs: list[QuestionRun]) -> dict[str, Any]:
    """A question asked of several parties."""
    found = [ArmAnswers({"source": {key: one[at] for key, one in runs.items()}}) for at in range(RUNS)]
    return asked(Source(), found, answers(trials(0.9), "source"), dict.fromkeys(runs, False), {})


def test_every_party_with_a_leak_is_named() -> None:
    found = parties(server=trials(0.8), client=trials(0.9), sum1=trials(0.3), sum2=trials(0.7))
    got = judged([row("own", 0.9, source=found)])
    assert got["sentence"].startswith("own leaks to the server, a client and sum server 2, in 1 of 1 question")


def test_a_party_of_which_nothing_can_be_told_is_not_said_to_learn_nothing() -> None:
    wild = parties(server=trials(0.3), client=spread(0.3, 0.3))
    assert [wild["adversaries"][key]["unsure"] for key in ("server", "client")] == [False, True]
    got = judged([row("own", 0.9, source=wild)])
    said = {one["adversary"]: (one["light"], one["sentence"]) for one in got["against"]}
    assert said["client"] == ("amber", "the audit cannot tell if it learns whose record it is")
    assert said["server"] == ("green", "not found to learn whose record it is")
    assert got["light"] == "amber"
    both = judged([row("own", 0.9, source=wild, membership=parties(client=trials(0.9)))])["against"]
    sure = next(one for one in both if one["adversary"] == "client")
    assert sure["light"] == "red"
    assert sure["sentence"].startswith("learns whose record it is; the audit cannot tell if it learns ")


def test_a_leak_that_a_proof_rules_out_is_called_a_contradiction() -> None:
    runs = dict.fromkeys(("server", "sum2"), trials(0.9))
    found = [ArmAnswers({"source": {key: one[at] for key, one in runs.items()}}) for at in range(RUNS)]
    proved = {"sum2": "it sees noise alone"}
    got = judged(
        [
            row(
                "own",
                0.9,
                source=asked(Source(), found, answers(trials(0.9), "source"), dict.fromkeys(runs, False), proved),
            )
        ]
    )
    assert got["sentence"].startswith("own leaks to the server and sum server 2 (which contradicts a proof), in 1 of 1")
    said = {one["adversary"]: (one["light"], one["sentence"]) for one in got["against"]}
    assert said["server"] == ("red", "learns whose record it is")
    light, sentence = said["sum2"]
    assert light == "amber"
    assert sentence.startswith("measured with a leak, whose record it is: a contradiction to be looked at, ")
    assert sentence.endswith("it sees noise alone")
