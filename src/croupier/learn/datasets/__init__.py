"""The datasets that can be chosen by name.

Each file is one dataset, or one form that several share (`idx`, `archive`). Most are read from the data folder without
running anything that lies in it, and checked against the sizes they must have; `digits` comes with scikit-learn,
`synthetic` is drawn, and `own` calls the user's function. Each names its licence for `croupier doctor`. docs/data.md
says where the files are to lie.
"""

from typing import TYPE_CHECKING

from croupier.core.rooms import when_asked

if TYPE_CHECKING:
    from croupier.learn.datasets.activity import Activity
    from croupier.learn.datasets.cifar10 import Cifar10
    from croupier.learn.datasets.digits import Digits
    from croupier.learn.datasets.ecg import Ecg
    from croupier.learn.datasets.fashion import Fashion
    from croupier.learn.datasets.households import Households
    from croupier.learn.datasets.mnist import Mnist
    from croupier.learn.datasets.newsgroups import Newsgroups
    from croupier.learn.datasets.own import OwnData
    from croupier.learn.datasets.synthetic import Synthetic

__all__ = [
    "Activity",
    "Cifar10",
    "Digits",
    "Ecg",
    "Fashion",
    "Households",
    "Mnist",
    "Newsgroups",
    "OwnData",
    "Synthetic",
]

if not TYPE_CHECKING:
    # Loaded when first asked for, as a run uses one of them. A type checker goes by the imports above instead.
    __getattr__ = when_asked(__name__, __all__)
