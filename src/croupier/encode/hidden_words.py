"""What the statement says of hidden coordinates: who agrees on the rules, what they are worth, and what goes wrong.

Words only, kept apart from the encoder (`encode.hidden`), which picks among them; `croupier explain` prints them. A
rule is here the secret order in which hidden units lie.
"""

from __future__ import annotations

from croupier.agree.before_round import AgreementRules
from croupier.core.epoch import disjoint_cohort_chance

# Shares below this are told as being so.
RARE = 0.001
NEWCOMERS = {
    "epoch": "when clients are enrolled later, all agree on a new secret, and clients that hold both move the models "
    "to it: newcomers are told no earlier secret. But such a model is seen in both coordinates: whoever matches the "
    "two, the server or a newcomer that sees earlier uploads, links the epochs",
    "welcome": "clients that are enrolled later are told the epoch's secret, sealed, by its holders: they can open "
    "every earlier round of the epoch, should they see its uploads, and so can anybody whom they tell",
}
RECORDS = (
    "with each update the server gets one record of that client, every round it takes part: its values in another "
    "order. Sorted values, mean and contrast are in the clear, and so is the class that any model gives it; all "
    "records of a round are in the same order, so that smoothness and co-occurrence put them back (croupier reproduce "
    "tazza/figure18 measures how far), and a rule that is matched or told opens them. No noise covers them. Probes of "
    "noise need none of this",
)


def permuted(rules: AgreementRules) -> tuple[str, str]:
    """What is permuted by whose rule, and what that agreement means."""
    rule = "one rule for the whole epoch, which is weaker" if rules.kept else "another rule every round"
    who = "all enrolled clients" if rules.agree == "epoch" else "the clients of each round"
    return (
        f"hidden units and inputs are permuted along the network's symmetries, by {rule}, that {who} agree on and "
        "the server never sees",
        NEWCOMERS[rules.newcomers] if rules.agree == "epoch" else _each_round(rules),
    )


def waits_for(rules: AgreementRules) -> str:
    """Without whom there is no agreement, and so no round."""
    if rules.agree == "round":
        return "a round also needs a client that knows the last rule, and enough clients that agree on the next one"
    when = "before the first round" if rules.newcomers == "welcome" else "before the first round, and when clients join"
    return f"{when}, all enrolled clients must come and agree on a secret: if one does not, the run ends"


def _each_round(rules: AgreementRules) -> str:
    """What it means that those invited agree anew every round."""
    chosen = (
        "a seed that its head draws, by PBFT: of those invited fewer than a third may be faulty or absent, and a "
        "head that tells the server its seed, or takes one that the server knows, is not found out"
        if rules.by == "pbft"
        else "a joint secret, which nobody chooses"
    )
    asked = (
        "those of this cohort who took part in it hand it on to the others, and a round that has none of them is "
        "lost and counted: the model stays"
        if rules.fetch == "cohort"
        else "where nobody of this cohort took part in it, any client that did is asked for it, and must be there "
        "to answer; if none is, the round is lost and counted"
    )
    return (
        f"the clients of every round agree on {chosen}. The last model lies under the rule of an earlier round: "
        f"{asked}. Whoever is handed a rule can open that round's uploads, should it see them"
    )


def lost_rounds(rules: AgreementRules, enrolled: int, invited: int, by_name: bool) -> tuple[str, ...]:
    """How often nobody who is invited knows the last rule; `by_name`: clusters of clients have rules of their own."""
    share = disjoint_cohort_chance(enrolled, invited)
    often = f"{share:.1%}" if share >= RARE else f"fewer than {RARE:.1%}"
    then = "is lost" if rules.fetch == "cohort" else "must ask clients that were not invited"
    more = (
        ". A cluster of which nobody came keeps its model and its rule: more clients than that may find nobody who "
        "knows the one of theirs, and take no part"
        if by_name
        else ""
    )
    return (
        f"{invited} of {enrolled} clients are invited: {often} of the rounds have nobody who took part in the "
        f"last one that was held, and such a round {then}{more}",
    )


def warnings(rules: AgreementRules, first: str) -> dict[str, str]:
    """What the permutation is worth: where the server is curious, nothing to rely on."""
    once = "once for the epoch, because all uploads lie in one order" if rules.kept else "round by round"
    found = {
        "open": (
            f"the server has the first model in plain order, so it can find the rule {once}, for all clients "
            "alike: what it holds is then what it would hold without a permutation"
        ),
        "clients": (
            f"the clients draw the first model, so no view is in plain order. The server can bring all uploads "
            f"into one order, {once}, and read gradients in it. Which unit or input is which stays unknown, but "
            "for what the data tell: of pictures public ones of the same kind tell much"
        ),
    }[first]
    return {
        "permutation": (
            "obfuscation, not encryption. Under every rule the values of a row are the same, and so are norms and "
            "singular values: each unit keeps its own mark"
        ),
        "matching": (
            "weights of an upload are matched with those of the model that was handed out, by one assignment a "
            f"layer and no search among orders. Here {found}. Measured by: croupier audit"
        ),
        "a leak": (
            "one client that tells the secret opens every round of the epoch, earlier ones too, every client's "
            "updates, and by matching the other epochs; nobody notices"
            if rules.agree == "epoch"
            else "one client that tells the secrets it holds opens the rounds of these, and matching the others; "
            "nobody notices"
        ),
        "instead": (
            "for updates that the server must not see use sum servers (croupier run rns-servers --print-config "
            "shows such a protocol): they need no permutation, and allow no rule that compares updates"
        ),
    }
