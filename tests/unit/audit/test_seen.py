"""What adversaries read in their views, against what clients really sent; and what is proved to be noise is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp, kstest
from tests.laws.pipelines import HIDDEN, PIPELINES
from tests.laws.toy import SEED, layout_for
from tests.laws.toy import fit as fit_toy
from tests.laws.toy import task as toy
from tests.views import Staged
from torch import Tensor

from croupier.aggregate.mean import Mean, Scaled
from croupier.audit import seen as reading
from croupier.audit.client_view import handed, trained_from
from croupier.audit.question import SERVER, Adversary, adversaries, parse
from croupier.audit.seen import begun, counted, seen, shows
from croupier.core.coins import Coins, Stream
from croupier.core.update import Update
from croupier.encode.fixed import FixedPoint
from croupier.encode.grid import OnGrid
from croupier.encode.residues import Residues
from croupier.errors import SpecError
from croupier.learn.assemble import TaskOptions, assemble
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.root import Root
from croupier.learn.split import Dirichlet
from croupier.pipeline import Pipeline
from croupier.place.masks import Masks
from croupier.place.relay import Relay
from croupier.place.servers import SumServers
from croupier.place.two_servers.pair import Pair
from croupier.place.two_servers.pooled import Pool
from croupier.privacy.gaussian import Gaussian
from croupier.release.bits import Counts
from croupier.release.sums import Sum
from croupier.spec import load
from croupier.systems import rns, sum_servers
from croupier.toml_read import presets

MORE = {
    "masks, noise, rounded at random": Pipeline(
        privacy=Gaussian(clip=1, sigma=0.1), place=Masks(), release=Sum(),
        encode=FixedPoint(clients=8, form="delta", scale=8, rounding="stochastic"),
    ),
    "sum servers, a layer left out": Pipeline(
        encode=FixedPoint(clients=8, form="delta", excluded=("head",)), release=Sum(), place=SumServers()
    ),
    "sum servers, a scale each": Pipeline(
        encode=FixedPoint(clients=8), release=Sum(), aggregate=Scaled(each=True), place=SumServers(servers=5)
    ),
    "counts, weighted": Pipeline(
        encode=Residues(clients=8, weights="slot", cap=50), release=Counts(), aggregate=Scaled(), place=Relay()
    ),
}  # fmt: skip
ALL = {**PIPELINES, **HIDDEN, **MORE}
# One preset of each protocol: some differ in their data only.
OWN = {pipeline.digest(): name for name in reversed(presets()) if (pipeline := load(name).protocol)}
# Bits that are encrypted one by one are for smaller networks than this; the toy's are read as `ALL` has them.
del OWN[load("rns-chain-proofs").protocol.digest()]
CLIENTS = 8
# Of the laws' placements, one that does not say what its own parties see.
SILENT = ("two-hop",)


@cache
def staged(name: str) -> Staged:
    """A pipeline of the laws, on the toy."""
    return Staged(ALL[name], toy(layout=layout_for(ALL[name])), Coins.from_seed(SEED))


@cache
def learnt(preset: str) -> Staged:
    """A preset's protocol on digits, for a few clients and a small network."""
    coins = Coins.from_seed(3)
    made = assemble(
        Digits(),
        Dirichlet(clients=CLIENTS, alpha=1.0, least=20),
        Mlp(hidden=(8,)),
        Sgd(lr=0.1, epochs=1),
        coins,
        options=TaskOptions(root=Root(records=50)),
    )
    pipeline = load(preset).protocol
    if isinstance(pipeline.place, Pair):
        # A network this small carries fewer bits of noise than the preset asks for.
        pipeline = pipeline.model_copy(update={"place": pipeline.place.model_copy(update={"entropy": 0.0})})
    return Staged(pipeline, made.task, coins)


CASES: list[Any] = [
    *(pytest.param(staged, name, id=name) for name in ALL),
    *(pytest.param(learnt, name, id=f"preset {name}") for name in sorted(OWN.values())),
]
Case = Callable[[str], Staged]


def who_see(one: Staged, *kinds: str) -> list[Adversary]:
    """The adversaries that are said to see this."""
    return [who for who in adversaries(one.pipeline) if shows(one.pipeline, who).kind in kinds]


def rows_are_the_clients(one: Staged, who: Adversary) -> None:
    """Named rows are what clients sent."""
    got = one.read(who)
    assert got.rows is not None
    assert got.ids is not None
    assert set(got.ids) == set(one.clients), f"{who.key} names others"
    rows = got.rows[[got.ids.index(name) for name in one.clients]]
    assert got.form == "weights"
    assert torch.allclose(rows, one.sent, rtol=1e-5, atol=1e-6), f"{who.key} reads other rows than were sent"


@pytest.mark.parametrize(("case", "name"), CASES)
def test_named_rows_are_what_each_client_sent(case: Case, name: str) -> None:
    one = case(name)
    for who in who_see(one, "named"):
        if one.pipeline.encode.agrees or (one.pipeline.encode.scaled and who == SERVER):
            continue  # In the clients' own coordinates, or multiplied: as the server has always read them.
        rows_are_the_clients(one, who)


@pytest.mark.parametrize(("case", "name"), CASES)
def test_what_was_sent_is_what_was_learnt(case: Case, name: str) -> None:
    """Within the encoder's grid, or up to its sign."""
    one = case(name)
    encode, bare = one.pipeline.encode, one.pipeline.privacy.use == "none"
    if encode.agrees or not bare:
        pytest.skip("what is sent is permuted, or carries noise")
    if encode.use == "signs":
        moved = one.trained - one.start
        same = torch.sign(one.sent - one.start) == torch.sign(moved)
        assert bool((same | (moved == 0)).all())
    else:
        scale = float(one.start.abs().max().clamp(min=1)) * 4 if isinstance(one.pipeline.aggregate, Scaled) else 1.0
        if isinstance(encode, OnGrid) and encode.excluded:
            pytest.skip("a layer is not sent")
        off = 1e-6 + (scale / encode.unit * 4 if isinstance(encode, OnGrid) else 0)
        assert float((one.sent - one.trained).abs().max()) <= off


@pytest.mark.parametrize(("case", "name"), CASES)
def test_shuffled_rows_are_the_clients_in_another_order(case: Case, name: str) -> None:
    one = case(name)
    for who in who_see(one, "model", "layer", "parameter"):
        got = one.read(who)
        assert got.rows is not None
        assert got.ids is None
        if got.scaled:
            continue  # As the server has always read them: multiplied by weights of which nobody knows whose they are.
        rows, true = got.rows.double(), one.sent.double()
        assert torch.allclose(rows.sort(0)[0], true.sort(0)[0], rtol=1e-5, atol=1e-6)
        if shows(one.pipeline, who).kind == "model":
            apart = torch.cdist(rows, true)
            assert sorted(apart.argmin(1).tolist()) == list(range(len(true)))
            assert float(apart.min(1).values.max()) < 1e-4


def opened(one: Staged, who: Adversary) -> bool:
    """Whether an adversary is told the sum itself, and not the model that came of it."""
    published = isinstance(one.pipeline.place, SumServers) and who.parties == ("client",)
    return one.pipeline.release.shape != "scored" and (who == SERVER or published)


@pytest.mark.parametrize(("case", "name"), CASES)
def test_a_sum_is_the_mean_of_what_was_sent(case: Case, name: str) -> None:
    """Or else the model that the server made of it, which for plain means is the same."""
    one = case(name)
    if one.pipeline.encode.agrees or one.pipeline.release.use == "groups":
        pytest.skip("there is no sum, or groups count alike")
    made, mean = reading.server_model(one.played.views[0]["server"]).double(), one.weighed(one.sent)
    near = 2e-3 if one.pipeline.encode.scaled else 1e-5
    if type(one.pipeline.aggregate) in (Mean, Scaled) and one.pipeline.aggregate.anew:
        assert torch.allclose(made, mean, rtol=1e-4, atol=near)
    for who in who_see(one, "sum", "counts"):
        got = one.read(who)
        assert got.form == "weights"
        assert got.weights is not None
        rows = got.sums if got.rows is None else got.weights.unsqueeze(1) * got.rows.double()
        assert rows is not None
        found = rows.reshape(-1, len(mean)).sum(0) / got.weights.sum()
        assert torch.allclose(found, mean if opened(one, who) else made, rtol=1e-4, atol=near), who.key


@pytest.mark.parametrize("name", HIDDEN)
def test_a_client_reads_the_joint_model_in_plain_coordinates(name: str) -> None:
    one = staged(name)
    got = one.read(Adversary(("client",)))
    assert got.sums is not None
    assert torch.allclose(got.sums, one.trained.double().mean(0), atol=1e-6)
    rows = one.read(SERVER).rows
    assert rows is not None
    assert torch.allclose(rows.sort(1)[0], one.trained.sort(1)[0], atol=1e-5), "permuted, and nothing else"


@pytest.mark.parametrize("name", [name for name, pipeline in ALL.items() if pipeline.encode.form == "weights"])
def test_the_server_reads_what_it_always_read(name: str) -> None:
    one = staged(name)
    was = reading.read_server(one.views(SERVER)["server"][0], one.pipeline.plain(), one.task.layout)
    now = one.read(SERVER)
    for field in was.__dataclass_fields__:
        before, after = getattr(was, field), getattr(now, field)
        assert torch.equal(before, after) if isinstance(before, Tensor) else before == after


VOTED = PIPELINES["two servers"].model_copy(update={"place": Pair(malicious=False, missing="vote")})
TRANSLATED = VOTED.model_copy(update={"place": Pair(malicious=False, missing="vote", shuffle="translate")})
SIGNED = VOTED.model_copy(update={"place": Pair(entropy=0, missing="vote")})
LEFT = ["sum servers", "sum", "bits", "two servers", "two servers, one malicious", "two servers, boxes"]


@pytest.mark.parametrize("pipeline", [*(PIPELINES[name] for name in LEFT), VOTED, TRANSLATED, SIGNED])
def test_rows_are_those_of_the_clients_that_came(pipeline: Pipeline) -> None:
    one = Staged(pipeline, toy(layout=layout_for(pipeline)), Coins.from_seed(SEED), frozenset({"c1"}))
    assert one.clients == ("c0", "c2", "c3")
    for who in who_see(one, "named"):
        rows_are_the_clients(one, who)
    for who in who_see(one, "sum"):
        got, made = one.read(who), reading.server_model(one.played.views[0]["server"]).double()
        assert got.sums is not None
        assert got.weights is not None
        assert torch.allclose(got.sums / got.weights, made, atol=1e-5), who.key


# Noise


# What is not sent is no noise.
NOISY = [
    name
    for name, pipeline in ALL.items()
    if isinstance(pipeline.place, SumServers) and not getattr(pipeline.encode, "excluded", ())
]


def noise(one: Staged, who: Adversary) -> Tensor:
    """The numbers that servers hold of all clients, as a share of all that they could be."""
    encode, got = one.pipeline.encode, one.read(who)
    assert isinstance(encode, OnGrid)
    assert isinstance(encode.modulus, int)
    assert got.rows is not None
    assert got.ids == one.clients
    first = one.start.double() if encode.form == "delta" else 0.0
    scale = 1.0 if isinstance(one.pipeline.aggregate, Scaled) else encode.scale
    return (got.rows.double() - first) * encode.unit / scale / encode.modulus


def partial(one: Staged) -> list[Adversary]:
    """Each sum server alone, and all of them but the last."""
    place = one.pipeline.place
    assert isinstance(place, SumServers)
    return [*(parse(name, one.pipeline) for name in place.names), parse("+".join(place.names[:-1]), one.pipeline)]


@pytest.mark.parametrize("name", NOISY)
def test_a_sum_server_reads_uniform_numbers_that_have_nothing_to_do_with_updates(name: str) -> None:
    one = staged(name)
    for who in partial(one):
        found = shows(one.pipeline, who)
        assert (found.kind, who.forbidden) == ("noise", False)
        assert "uniform numbers that depend on nobody's update" in found.why
        numbers = noise(one, who)
        assert kstest(numbers.flatten().numpy(), "uniform", (-0.5, 1)).pvalue > 1e-4
        true = one.sent.double()
        together = np.corrcoef(numbers.flatten().numpy(), true.flatten().numpy())[0, 1]
        assert abs(together) < 4 / true.numel() ** 0.5


def moved(jobs: Any) -> list[Update]:
    """Training that ends somewhere else altogether."""
    return [replace(update, vector=-update.vector.flip(0)) for update in fit_toy(jobs)]


@pytest.mark.parametrize("name", NOISY)
def test_noise_is_the_same_whatever_clients_learn(name: str) -> None:
    """A share is drawn alone, but for the long one: of it only the difference to the update shows, which is a mask."""
    one = staged(name)
    other = replace(one, task=replace(one.task, fit=moved))
    assert not torch.allclose(one.sent, other.sent, atol=0.05)
    for who in partial(one):
        before, after = noise(one, who), noise(other, who)
        # The same coins: who holds seeds holds the very same numbers.
        assert ks_2samp(before.flatten().numpy(), after.flatten().numpy()).pvalue > 1e-4
        short = [at for at in range(len(one.clients)) if not _long(one, who, at)]
        assert torch.allclose(before[short], after[short], atol=1e-6)


def _long(one: Staged, who: Adversary, at: int) -> bool:
    """Whether one of these servers holds the long share of a client."""
    place = one.pipeline.place
    assert isinstance(place, SumServers)
    return place.names[at % place.servers] in who.parties


def test_with_the_server_some_sum_servers_see_the_sum() -> None:
    one = staged("sum servers")
    for text in ("server+sum1+sum2", "client+sum3"):
        who = parse(text, one.pipeline)
        assert shows(one.pipeline, who).kind == "sum"
        got = one.read(who)
        assert got.sums is not None
        assert got.weights is not None
        assert torch.allclose(got.sums / got.weights, one.weighed(one.sent), atol=1e-5)


# Who counts, and who cannot read


def test_the_server_counts_and_the_relay_does_not() -> None:
    one = staged("counts")
    plain, layout = one.pipeline.plain(), one.task.layout
    found = counted(one.views(SERVER), plain, layout)
    assert found is not None
    assert len(found.ones) == layout.size
    assert counted(one.views(parse("relay", one.pipeline)), plain, layout) is None
    assert counted(one.views(parse("server+relay", one.pipeline)), plain, layout) is None
    assert isinstance(rns(4, release="counts").release, Counts)


@pytest.mark.parametrize("name", ["two servers", "sum", "plain"])
def test_who_sees_nothing_reads_nothing(name: str) -> None:
    one = staged(name)
    for who in who_see(one, "nothing"):
        assert shows(one.pipeline, who).why
        with pytest.raises(SpecError):
            one.read(who)


def test_on_the_last_round_a_client_is_handed_nothing() -> None:
    one = staged("plain")
    last = one.played.seen_by(Adversary(("client",)), 1)
    with pytest.raises(SpecError, match="next one"):
        seen(last, one.pipeline.plain(), one.task.layout, one.start)


def test_every_party_of_our_own_says_what_it_sees() -> None:
    for name, pipeline in ALL.items():
        for who in adversaries(pipeline):
            if pipeline.place.use not in SILENT:
                assert "does not say" not in shows(pipeline, who).why, name


# Planted faults


class Swapped(SumServers, use="swapped-servers"):
    """A planted fault: whoever reads takes the first client's shares for the second's."""

    def pooled(self, mechanism: Any, parties: Any) -> Any:
        """Rows under each other's names."""
        got = super().pooled(mechanism, parties)
        assert got.rows is not None
        return replace(got, rows=got.rows.roll(1, 0))


class Short(SumServers, use="short-servers"):
    """A planted fault: one server's shares are left out."""

    def pooled(self, mechanism: Any, parties: Any) -> Any:
        """All but the last."""
        return super().pooled(mechanism, dict(list(parties.items())[:-1]))


class Greedy(Masks, use="greedy-masks"):
    """A planted fault: what is left of the sum is taken for the first client's."""

    def pooled(self, mechanism: Any, parties: Any) -> Any:
        """In another order."""
        got = super().pooled(mechanism, parties)
        assert got.rows is not None
        return replace(got, rows=got.rows.flip(0))


@pytest.mark.parametrize("place", [Swapped(), Short(), Greedy()])
def test_a_wrong_reading_is_caught(place: Any) -> None:
    pipeline = sum_servers(8).model_copy(update={"place": place})
    one = Staged(pipeline, toy(), Coins.from_seed(SEED))
    (who,) = [who for who in adversaries(pipeline) if who.forbidden]
    with pytest.raises(AssertionError, match="other rows"):
        rows_are_the_clients(one, who)


def _crossed(pool: Pool) -> dict[str, Any]:
    """A planted fault: the servers' orders, one after the other the wrong way round."""
    rows, (one, two) = SHARED(pool), (pool._material(0).order, pool._material(1).order)
    right, wrong = one[two].tolist(), two[one].tolist()
    return {pool.given.roster[w]: rows[pool.given.roster[r]] for r, w in zip(right, wrong, strict=True)}


SHARED = Pool._shared


@pytest.mark.parametrize("name", ["two servers", "two servers, one malicious"])
def test_rows_that_are_put_back_in_a_wrong_order_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "_shared", _crossed)
    with pytest.raises(AssertionError, match="other rows"):
        rows_are_the_clients(staged(name), parse("server+second", ALL[name]))


def test_a_share_that_is_no_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: masks of nothing."""
    monkeypatch.setattr(Stream, "packed", lambda *_: lambda _first: lambda out, _count: out.fill(0))
    one = Staged(sum_servers(8), toy(), Coins.from_seed(SEED))
    numbers, true = noise(one, parse("sum1", one.pipeline))[0].numpy(), one.sent[0].double().numpy()
    assert kstest(numbers, "uniform", (-0.5, 1)).pvalue < 1e-4
    assert np.corrcoef(numbers, true)[0, 1] > 0.99


@pytest.mark.parametrize("name", [name for name, pipeline in ALL.items() if pipeline.encode.agrees])
def test_a_client_reads_both_models_of_a_round_in_the_order_that_it_trains_in(name: str) -> None:
    one = staged(name)
    client, protocol = Adversary(("client",)), one.pipeline.plain()
    (who, (_, second)), *_ = one.played.seen_by(client, 0).items()
    joint = one.read(client).sums
    assert joint is not None
    # What came of the first round is what the second one begins with.
    assert torch.equal(begun({who: (second,)}, protocol, handed(second)).double(), joint)
    # Another client, which takes part without being handed anything in between, reads the same.
    other = next(views[0] for name, views in one.played.seen_by(Adversary(("clients",)), 1).items() if name != who)
    assert torch.equal(begun({other["given"]["me"]: (other,)}, protocol, handed(other)).double(), joint)
    # The order that models travel in is another one, and is all that the server has.
    assert not torch.equal(handed(second).double(), joint)
    assert begun(one.views(SERVER), protocol, one.start) is one.start


@pytest.mark.parametrize("name", [name for name, pipeline in ALL.items() if pipeline.encode.agrees])
def test_a_client_puts_in_order_what_its_coalition_sees(name: str) -> None:
    """Before noise, what clients sent is what they learnt: in plain order, by the model that they trained."""
    one = staged(name)
    together = parse("server+client", one.pipeline)
    got, alone = one.read(together), one.read(SERVER)
    assert got.ids is not None
    assert got.rows is not None
    assert alone.rows is not None
    by_name = [got.ids.index(client) for client in one.clients]
    if one.pipeline.privacy.noiseless:
        assert torch.allclose(got.rows[by_name], one.trained, atol=1e-6)
    assert torch.equal(got.rows.sort(1).values, alone.rows.sort(1).values) or one.pipeline.encode.form == "delta"
    assert not torch.equal(got.rows, alone.rows)
    (first, *_) = one.views(together)[next(name for name in one.views(together) if name in one.clients)]
    assert torch.equal(begun(one.views(together), one.pipeline.plain(), one.start), trained_from(first))
