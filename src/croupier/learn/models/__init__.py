"""The models that can be chosen by name, and the plain modules that they build."""

from croupier.learn.models.activity import ActivityCnn, TimeNet
from croupier.learn.models.cnn import CifarCnn, ConvNet, MnistCnn
from croupier.learn.models.densenet import DenseNet, DenseNet121
from croupier.learn.models.layers import Dropout, Standardise
from croupier.learn.models.lenet import DlgLeNet, SigmoidNet
from croupier.learn.models.lstm import Forecaster, Lstm
from croupier.learn.models.mlp import Mlp, Perceptron
from croupier.learn.models.mobilenet import MobileNet, MobileNetV2
from croupier.learn.models.network import Network
from croupier.learn.models.own import OwnNetwork
from croupier.learn.models.resnet import ResidualNet, ResNet18
from croupier.learn.models.series import Patches, SeriesTransformer
from croupier.learn.models.transformer import Reader, TextTransformer

__all__ = [
    "ActivityCnn",
    "CifarCnn",
    "ConvNet",
    "DenseNet",
    "DenseNet121",
    "DlgLeNet",
    "Dropout",
    "Forecaster",
    "Lstm",
    "Mlp",
    "MnistCnn",
    "MobileNet",
    "MobileNetV2",
    "Network",
    "OwnNetwork",
    "Patches",
    "Perceptron",
    "Reader",
    "ResNet18",
    "ResidualNet",
    "SeriesTransformer",
    "SigmoidNet",
    "Standardise",
    "TextTransformer",
    "TimeNet",
]
