"""IntraShuffler's Table 7: what forming buckets, shuffling and averaging cost in clients and parameters, measured."""

from __future__ import annotations

import platform
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.mean import Mean
from croupier.bench.intra import measure
from croupier.core.coins import Coins
from croupier.core.tier import Tier
from croupier.core.update import Gathered, Layout, Model, Slice
from croupier.papers.entry import Ledger, Scale
from croupier.release.buckets import form
