"""What an audit asks of parts: the default of each answer, and the parts that answer otherwise."""

from __future__ import annotations

import pytest

from croupier.encode.floats import Floats
from croupier.encode.hidden import HiddenUnits
from croupier.encode.residues import Residues
from croupier.encode.signs import Signs
from croupier.errors import ProtocolError
from croupier.learn.datasets import Cifar10, Digits
from croupier.learn.datasets.households import Households
from croupier.learn.dp_fit import DpSgd
from croupier.learn.fit import Sgd
from croupier.learn.private import clip_and_noise
from croupier.place.relay import Relay
from croupier.place.two_servers.pair import Pair
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.tiers import Tiers
from croupier.release.bits import Bits, Counts, Mod
from croupier.release.bucketed import Buckets, BucketSums
from croupier.release.rows import Rows
from croupier.release.scored import ScoredSum
from croupier.release.shuffle import Shuffle


def test_only_shuffles_say_in_which_pieces() -> None:
    assert (Shuffle(grain="layer").pieces, Buckets(grain="model").pieces) == ("layer", "model")
    assert Rows().pieces is BucketSums().pieces is ScoredSum().pieces is None


def test_only_releases_by_tiers_form_buckets() -> None:
    tiers = [tier for name in "abcd" if (tier := Tiers(clip=1.0).tier(name))]
    assert sum(one.size for one in BucketSums(smallest=2).buckets(tiers)) == 4
    with pytest.raises(ProtocolError, match="puts no clients together"):
        Rows().buckets(tiers)


def test_only_bits_and_counts_show_ones_as_integers() -> None:
    assert [one.counts_ones for one in (Bits(), Counts(), Mod(), Rows())] == [True, True, False, False]


def test_a_scored_sum_weighs_unless_all_count_alike_or_only_signs_are_opened() -> None:
    assert ScoredSum(weights="relu").weighs
    assert not ScoredSum().weighs
    assert not ScoredSum(weights="relu", opens="signs").weighs
    assert not Rows().weighs


def test_encoders_say_what_travels() -> None:
    assert (Signs().signs_only, Floats().signs_only, Residues(clients=3).signs_only) == (True, False, False)
    assert (Floats().verbatim, HiddenUnits().verbatim, Signs().verbatim) == (True, False, False)
    assert (HiddenUnits(kept=True).keeps_rule, HiddenUnits().keeps_rule, Floats().keeps_rule) == (True, False, False)


def test_a_pair_asks_no_noise_of_who_adds_none() -> None:
    assert Pair(entropy=40.0).without_noise().entropy == 0
    relay = Relay()
    assert relay.without_noise() is relay


def test_only_tiers_are_tiers() -> None:
    own = Tiers(clip=1.0)
    assert own.as_tiers() is own
    assert Gaussian(clip=1.0, sigma=1.0).as_tiers() is None


def test_data_say_whose_records_can_be_asked_for() -> None:
    everybody = Households(households=5).of_everybody()
    assert (everybody.many, Households.selects_owners, Digits.selects_owners) == (None, True, False)
    assert everybody.of_everybody() is everybody
    assert (Cifar10.coloured, Digits.coloured) == (True, False)


def test_only_private_training_clips_and_noises() -> None:
    assert clip_and_noise(DpSgd(clip=0.5, noise=2.0)) == (0.5, 2.0)
    assert clip_and_noise(Sgd()) is None
