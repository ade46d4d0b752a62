"""The datasets that can be chosen by name."""

from croupier.learn.datasets.cifar10 import Cifar10
from croupier.learn.datasets.digits import Digits
from croupier.learn.datasets.fashion import Fashion
from croupier.learn.datasets.households import Households
from croupier.learn.datasets.mnist import Mnist
from croupier.learn.datasets.own import Own
from croupier.learn.datasets.synthetic import Synthetic

__all__ = ["Cifar10", "Digits", "Fashion", "Households", "Mnist", "Own", "Synthetic"]
