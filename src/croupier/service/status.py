"""What a party tells its own operator's machines over plain HTTP: is it alive, is it ready, what has it counted.

/healthz   200 while the process answers
/readyz    200 when it listens (a host) and its certificate is good; 503 and the reason otherwise
/metrics   counts for Prometheus: no names, no updates, no reasons

For an address that only the operator reaches: nothing here is encrypted. `croupier serve` and `join` serve it with
`--status` (`cli.serve`).
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from croupier.errors import SpecError
from croupier.service.party import PartyProcess

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# What a party counts, and what it is called outside.
_COUNTS = {
    "letters": ("letters", "Letters that were accepted."),
    "bytes_in": ("received_bytes", "Bytes of letters of attempts that have ended."),
    "bytes_out": ("sent_bytes", "Bytes of letters of attempts that have ended."),
    "refused": ("refused", "Calls and notices that were refused."),
    "handshakes": ("failed_handshakes", "Handshakes that no call followed: strangers and ended certificates."),
    "late": ("late", "Letters that came too late."),
    "asked to wait": ("asked_to_wait", "Calls that were asked to come again."),
    "equivocations": ("equivocations", "Second letters that differed from the first."),
    "attempts": ("attempts", "Attempts at rounds that were begun."),
    "failed": ("failed_attempts", "Attempts that failed."),
}


class PartyMetrics:
    """Reads a party's own counts whenever it is asked."""

    def __init__(self, party: PartyProcess) -> None:
        self.party = party

    def collect(self) -> Iterator[Metric]:
        """Every metric, as it stands."""
        counts = self.party.counts
        for key, (name, about) in _COUNTS.items():
            yield CounterMetricFamily(f"croupier_{name}", about, counts[key])
        seconds = "Rounds that ended well, and the seconds that they took."
        yield SummaryMetricFamily("croupier_round_seconds", seconds, counts["rounds"], self.party.seconds)
        yield GaugeMetricFamily("croupier_in_flight_bytes", "Bytes of letters on their way in.", self.party.in_flight)
        yield GaugeMetricFamily("croupier_round", "The round played last, counted from 1.", self.party.number)
        roster = self.party.member.roster
        yield GaugeMetricFamily("croupier_roster_version", "The version of the roster that holds.", roster.version)
        expires = roster.card(self.party.name).expires.timestamp()
        yield GaugeMetricFamily("croupier_certificate_expires", "When the certificate ends, in Unix seconds.", expires)


def not_ready(party: PartyProcess, now: dt.datetime) -> str:
    """Why a party cannot take part at this moment; nothing when it can. It runs only under a roster it accepted."""
    card = party.member.roster.card(party.name)
    if now >= card.expires:
        return f"the certificate ended on {card.expires:%Y-%m-%d}; renew it: croupier rotate"
    return "" if party.listening or party.member.is_client else "it does not listen"


@contextmanager
def serving(party: PartyProcess, address: str) -> Iterator[int]:
    """Answer at an address while this lasts; the port. Raises: SpecError when it cannot be had."""
    registry = CollectorRegistry()
    registry.register(PartyMetrics(party))

    class Answer(BaseHTTPRequestHandler):
        """One request."""

        def do_GET(self) -> None:
            """Answer it."""
            code, text = self._found()
            self.send_response(code)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _found(self) -> tuple[int, bytes]:
            if self.path == "/metrics":
                return 200, generate_latest(registry)
            if self.path == "/healthz":
                return 200, b"alive\n"
            if self.path != "/readyz":
                return 404, b"see /healthz, /readyz and /metrics\n"
            why = not_ready(party, dt.datetime.now(dt.UTC))
            return (503, f"{why}\n".encode()) if why else (200, b"ready\n")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: probes come every few seconds."""

    host, _, port = address.rpartition(":")
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), Answer)
    except (OSError, ValueError, OverflowError) as error:
        raise SpecError(f"--status = {address!r:.60}: cannot listen there ({error}); write 127.0.0.1:9464") from None
    thread = threading.Thread(target=server.serve_forever, name="status", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
