"""The models that can be chosen by name, and the plain modules that they build.

An architecture has a file: a torch module, whose weights are what a run saves, and a part of the slot `Network`, which
a description names under `task.model` (`mlp`, `mnist-cnn`) and which checks that the data fit before it builds the
module. `cnn` has two parts, and `own` takes the user's module instead. `network` is the slot; `layers`, `grouped` and
`start` hold what several share. `core.part` finds a part by its name; Python code, above all the laboratory's, imports
the classes from here.
"""

from typing import TYPE_CHECKING

from croupier.core.rooms import when_asked

if TYPE_CHECKING:
    from croupier.learn.models.activity import ActivityCnn, TimeNet
    from croupier.learn.models.cnn import CifarCnn, ConvNet, MnistCnn
    from croupier.learn.models.densenet import DenseNet, DenseNet121
    from croupier.learn.models.layers import Dropout, Standardise
    from croupier.learn.models.lenet import DlgLeNet, SigmoidNet
    from croupier.learn.models.lstm import Forecaster, Lstm
    from croupier.learn.models.mixer import Mixer, PatchMixer
    from croupier.learn.models.mlp import Mlp, Perceptron
    from croupier.learn.models.mobilenet import MobileNet, MobileNetV2
    from croupier.learn.models.network import Network
    from croupier.learn.models.own import OwnNetwork
    from croupier.learn.models.resnet import ResidualNet, ResNet18
    from croupier.learn.models.rnn import Listener, Rnn
    from croupier.learn.models.series import PatchForecaster, SeriesTransformer
    from croupier.learn.models.transformer import Reader, TextTransformer
    from croupier.learn.models.vit import AttentionBlocks, PatchReader, Vit

__all__ = [
    "ActivityCnn",
    "AttentionBlocks",
    "CifarCnn",
    "ConvNet",
    "DenseNet",
    "DenseNet121",
    "DlgLeNet",
    "Dropout",
    "Forecaster",
    "Listener",
    "Lstm",
    "Mixer",
    "Mlp",
    "MnistCnn",
    "MobileNet",
    "MobileNetV2",
    "Network",
    "OwnNetwork",
    "PatchForecaster",
    "PatchMixer",
    "PatchReader",
    "Perceptron",
    "Reader",
    "ResNet18",
    "ResidualNet",
    "Rnn",
    "SeriesTransformer",
    "SigmoidNet",
    "Standardise",
    "TextTransformer",
    "TimeNet",
    "Vit",
]

if not TYPE_CHECKING:
    # Loaded when first asked for, as a run uses one of them. A type checker goes by the imports above instead.
    __getattr__ = when_asked(__name__, __all__)
