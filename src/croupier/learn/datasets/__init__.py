"""The datasets that can be chosen by name."""

from croupier.learn.datasets.digits import Digits
from croupier.learn.datasets.households import Households
from croupier.learn.datasets.mnist import Mnist

__all__ = ["Digits", "Households", "Mnist"]
