"""Who could be curious in a protocol, and what the command line makes of their names."""

from __future__ import annotations

import re

import pytest
from tests.laws.pipelines import HIDDEN, PIPELINES

from croupier.audit.question import SERVER, adversaries, parse
from croupier.audit.seen import shows
from croupier.errors import SpecError
from croupier.pipeline import Pipeline
from croupier.spec import load
from croupier.systems import naive, plain, rain, rns, sum_servers
from croupier.toml_read import presets

ALL = {**PIPELINES, **HIDDEN, **{name: load(name).protocol for name in presets()}}
MASKS = load("rns-masks").protocol
# Whoever holds anything, with the dealer that drew every permutation; and all mix servers.
DEALT = ["mix1+mix2+mix3", "server+dealer", "mix1+dealer", "mix2+dealer", "mix3+dealer"]
RUN_BY_CLIENTS = ["mix1+mix2+mix3+mix4", *DEALT[1:], "mix4+dealer"]


@pytest.mark.parametrize("name", ALL)
def test_every_party_is_an_adversary_and_the_server_the_first(name: str) -> None:
    pipeline = ALL[name]
    found = adversaries(pipeline)
    assert found[0] == SERVER
    alone = [who.parties[0] for who in found if len(who.parties) == 1]
    assert alone == ["server", *pipeline.place.middle(pipeline), "client", "network"]
    assert [who.parties for who in found if who.forbidden] == list(pipeline.place.breaks)
    assert len({who.key for who in found}) == len(found)


@pytest.mark.parametrize("name", ALL)
def test_what_is_forbidden_is_kept_apart_by_the_statement_and_would_show_more(name: str) -> None:
    pipeline = ALL[name]
    for who in adversaries(pipeline):
        if who.forbidden:
            assert pipeline.place.tolerance.apart
            assert shows(pipeline, who).kind in ("named", "model")


@pytest.mark.parametrize("name", [name for name in ALL if "dealer" in ALL[name].place.middle(ALL[name])])
def test_a_dealer_is_kept_apart_from_everybody_who_holds_something(name: str) -> None:
    """It draws the orders: the server too, to whom only rows without names go, is one of them."""
    pipeline = ALL[name]
    for other in {"server", *pipeline.place.middle(pipeline)} - {"dealer"}:
        assert shows(pipeline, parse(f"{other}+dealer", pipeline)).kind in ("named", "model"), other
    (said,) = [pair for pair in pipeline.place.tolerance.apart if "dealer" in pair[0]]
    assert "server" in re.split(" or |the ", said[1])


@pytest.mark.parametrize("name", ALL)
def test_an_adversary_goes_by_its_key(name: str) -> None:
    for who in adversaries(ALL[name]):
        assert parse(who.key, ALL[name]) == who


@pytest.mark.parametrize(
    ("pipeline", "forbidden"),
    [
        (plain(), []),
        (naive(), ["server+relay"]),
        (sum_servers(8), ["sum1+sum2+sum3"]),
        (sum_servers(8, servers=2), ["sum1+sum2"]),
        (MASKS, ["server+clients"]),
        (rain(), ["server+second", "server+dealer", "second+dealer"]),
        (load("tazza").protocol, []),
        *((load(name).protocol, DEALT) for name in ("rns-chain", "intra-chain")),
        (PIPELINES["bits, chain that clients run"], RUN_BY_CLIENTS),
        (load("rns-chain-proofs").protocol, ["mix1+mix2+mix3"]),
    ],
)
def test_forbidden_coalitions(pipeline: Pipeline, forbidden: list[str]) -> None:
    assert [who.key for who in adversaries(pipeline) if who.forbidden] == forbidden


@pytest.mark.parametrize(
    ("text", "pipeline", "key", "forbidden", "kind"),
    [
        ("relay + server", naive("layer"), "server+relay", True, "named"),
        ("client+server", naive("layer"), "server+client", False, "layer"),
        ("client+relay+server", rns(8), "server+relay+client", True, "named"),
        ("sum2+sum1", sum_servers(8), "sum1+sum2", False, "noise"),
        ("server+sum1+sum2", sum_servers(8), "server+sum1+sum2", False, "sum"),
        ("sum3+sum1+sum2+client", sum_servers(8), "sum1+sum2+sum3+client", True, "named"),
        ("server+server", plain(), "server", False, "named"),
        ("server", rns(8, release="bits"), "server", False, "counts"),
        ("server+client", MASKS, "server+client", False, "sum"),
        ("clients+server", MASKS, "server+clients", True, "named"),
        ("dealer+client", rain(), "dealer+client", False, "sum"),
        ("dealer+second", rain(), "second+dealer", True, "named"),
        ("dealer", rain(), "dealer", False, "nothing"),
        ("dealer+server", load("rns-chain").protocol, "server+dealer", True, "named"),
        ("dealer+client+server", load("intra-chain").protocol, "server+dealer+client", True, "named"),
        ("server+mix1+mix2", load("rns-chain").protocol, "server+mix1+mix2", False, "counts"),
        ("network", plain(), "network", False, "nothing"),
    ],
)
def test_parsed(text: str, pipeline: Pipeline, key: str, forbidden: bool, kind: str) -> None:
    who = parse(text, pipeline)
    assert (who.key, who.forbidden) == (key, forbidden)
    assert shows(pipeline, who).kind == kind


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("serve", "no party 'serve'; did you mean 'server'\\? It has server, relay, client, network"),
        ("server+xyz", "no party 'xyz'; known: client, network, relay, server"),
        ("server+clients", "no party 'clients'; did you mean 'client'"),
        ("", "no party ''"),
        ("server+network", "leave it out"),
    ],
)
def test_what_is_no_adversary(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse(text, naive())


@pytest.mark.parametrize(("shuffle", "kind"), [("translate", "named"), ("transfer", "model"), ("onion", "model")])
def test_a_dealer_that_knows_no_order_names_no_row(shuffle: str, kind: str) -> None:
    pipeline = PIPELINES["two servers"]
    place = pipeline.place.model_copy(update={"shuffle": shuffle})
    pipeline = pipeline.model_copy(update={"place": place})
    assert ("whose it is, the dealer does not know" in place.tolerance.privacy) == (kind == "model")
    assert shows(pipeline, parse("server+dealer", pipeline)).kind == kind
    assert shows(pipeline, parse("server+second", pipeline)).kind == "named"


def test_why_nothing_or_noise_is_seen_is_what_the_statement_says() -> None:
    servers, pair = sum_servers(8), rain()
    why = shows(servers, parse("sum2", servers)).why
    assert servers.place.learns(servers)["each sum server"] in why
    assert pair.place.learns(pair)["dealer"] in shows(pair, parse("dealer", pair)).why
    assert "who talks to whom" in shows(pair, parse("network", pair)).why
