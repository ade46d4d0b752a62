"""What running inside Flower adds to what must be trusted, in sentences; `croupier explain --flower` prints them.

They are of Flower and not of the protocol, whose own statement stands unchanged beside them. `unfit` says which
protocols cannot run there; `flower.fitting` and `flower.rehearse` refuse these. Needs no Flower.
"""

from __future__ import annotations

from croupier.pipeline import Pipeline


def unfit(pipeline: Pipeline) -> str:
    """Why a protocol cannot run inside Flower; nothing where it can.

    A node is there for one message at a time, so clients must send in one turn and need not wait for each other.
    """
    place, encode = pipeline.place, pipeline.encode
    if encode.rules is not None:
        return (
            f"protocol.encode = {encode.use!r}: clients agree on a secret before rounds, in several turns and all at "
            "once, and a Flower node is there for one message at a time; run it as services (croupier join)"
        )
    if not place.sends_once:
        return (
            f"protocol.place = {place.use!r}: clients send in several turns and all at once, and a Flower node is "
            "there for one message at a time; use place.decks = 1, or run it as services (croupier join)"
        )
    return ""


def sentences(pipeline: Pipeline) -> list[tuple[str, str]]:
    """What Flower's parties learn and could do, each with its head."""
    if why := unfit(pipeline):
        return [("inside Flower", f"refused: {why}")]
    hosts = ", ".join(name for name in pipeline.place.middle(pipeline)) or "nobody but the server"
    return [
        (
            "the SuperLink learns",
            "every model that is handed out, all evaluation metrics with their nodes, which nodes take part, when and "
            "for how long, and what the ServerApp prints, which Flower uploads: the mean of the training metrics is "
            "among it; no node's update and no node's training metrics pass it, nor why a node failed",
        ),
        (
            "the SuperLink could",
            "ship other code: nodes run what it sends them, and Flower signs no bundle that is started from a folder. "
            "An app without the mod would send updates in the clear. croupier flower-guard makes a node run only "
            "bundles whose SHA-256 its operator has approved; without it, all that is said here rests on the SuperLink "
            "and on everybody who may start a run",
        ),
        (
            "whoever starts a run",
            "may set any key of its configuration; none of them decides about protection, which a node reads from its "
            "own configuration and environment, and a run that names such a key is refused",
        ),
        ("nodes dial", f"besides the SuperLink: server and {hosts}, at the addresses of the roster they accepted"),
        (
            "errors",
            "an app's exceptions may hold records: the server gets one fixed word in their place, the node's log all "
            "of it",
        ),
        (
            "evaluation",
            "at most 64 single numbers pass in the clear, with the node's name; arrays, lists and answers to queries "
            "are refused",
        ),
        (
            "checks",
            "a node checks what came of a round with its next message, not in the same one: an alarm is raised there, "
            "and the node takes no further part",
        ),
        ("simulation", "flwr run without keys rehearses all of it on one machine, and protects nobody"),
    ]
