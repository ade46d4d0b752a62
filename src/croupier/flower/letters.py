"""What Croupier puts beside Flower's own records in a message, and in a reply: one record, of a few plain fields.

Nothing that depends on an update is among them. A node answers a training message with a bare yes; why it does not take
part is written to its own log, and the server gets one fixed word, whatever the reason. `flower.strategy` and
`flower.session` write and read these records at the server, `flower.mod` at the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Error, Message, RecordDict
from torch import Tensor

from croupier.core import canon
from croupier.errors import WireError
from croupier.mpc.signatures import signed, verified

RECORD = "croupier"
# All that a server learns of what went wrong at a node.
FIXED_WORD = "failed"
_CODE = 2
_HELLO = "croupier/1 flower hello"


@dataclass(frozen=True)
class Told:
    """What the server tells a node, as the fields that are set.

    `hello` asks who it is. `notice` opens a round; with it come what travels `beside` the model, and the name of the
    metric that clients count by (`weight`). Without either, the node only looks what came of the last round.
    `rehearsal` is the folder of throw-away keys.
    """

    hello: bytes = b""
    notice: bytes = b""
    beside: bytes = b""
    weight: str = ""
    rehearsal: str = ""

    def record(self) -> ConfigRecord:
        """As Flower carries it."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return ConfigRecord({name: value for name, value in fields.items() if value})

    @classmethod
    def read(cls, content: RecordDict) -> Told | None:
        """What a message holds of ours, taken out of it; None where it holds nothing. Raises: WireError."""
        if RECORD not in content:
            return None
        found = content.config_records.get(RECORD)
        del content[RECORD]
        if found is None:
            raise WireError(f"a message whose record {RECORD!r} is none of configuration")
        fields: dict[str, Any] = dict(found.items())
        for name, value in fields.items():
            known = cls.__dataclass_fields__.get(name)
            if known is None or not isinstance(value, type(known.default)):
                raise WireError(f"a message whose record {RECORD!r} has a field {name!r:.40} that it should not")
        return cls(**fields)

    def tensors(self) -> Mapping[str, Tensor]:
        """What travels beside the model. Raises: WireError."""
        found = canon.load(self.beside) if self.beside else {}
        if not isinstance(found, Mapping) or not all(isinstance(one, Tensor) for one in found.values()):
            raise WireError("what travels beside the model is no table of numbers")
        return found


def refusal(message: Message) -> Message:
    """The reply of a node that does not take part: one fixed word."""
    return Message(Error(code=_CODE, reason=FIXED_WORD), reply_to=message)


def taken(message: Message) -> Message:
    """The reply of a node that did its part: it is done, and no number."""
    return Message(RecordDict({RECORD: ConfigRecord({"done": True})}), reply_to=message)


def introduced(message: Message, name: str, identity: bytes, told: Told) -> Message:
    """A node's answer to who it is: its name in the roster, signed for this question."""
    proof = signed(identity, _question(told.hello, message.metadata.dst_node_id, name))
    return Message(RecordDict({RECORD: ConfigRecord({"name": name, "proof": proof})}), reply_to=message)


def name_in(reply: Message, nonce: bytes, identities: Mapping[str, bytes]) -> str | None:
    """Which client of the roster a node is; None where it does not prove that."""
    found = None if reply.has_error() else reply.content.config_records.get(RECORD)
    if found is None:
        return None
    name, proof = found.get("name"), found.get("proof")
    if not isinstance(name, str) or not isinstance(proof, bytes) or name not in identities:
        return None
    question = _question(nonce, reply.metadata.src_node_id, name)
    return name if verified(identities[name], question, proof) else None


def _question(nonce: bytes, node: int, name: str) -> bytes:
    return canon.digest((_HELLO, nonce, str(node), name))
