"""Files of one network's numbers, as any engine saves them: each is read once and checked, and nothing in it is run.

Safetensors, NumPy archives and torch's files are read, each without running anything that they hold; names and shapes
must be the network's. Audits of recorded updates (`audit.recorded`) read a folder of them.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from croupier.core.update import check_vector
from croupier.errors import DataError, RangeError
from croupier.learn.flat import frozen_of, layout_of

# A file may hold so many bytes for each number of the network, and some more for names.
_ROOM, _MORE = 16, 1 << 20
_REMEDY = "save a state dict by safetensors.torch.save_file, numpy.savez or torch.save, and nothing else"


class TensorFiles:
    """Files of one network's numbers: each is read once, and checked."""

    def __init__(self, folder: Path, module: nn.Module) -> None:
        self.folder, self.layout, self.frozen = folder, layout_of(module), frozen_of(module)
        self._whole = {name: tuple(value.shape) for name, value in module.state_dict().items()}
        self._learnt = [name for name, _ in module.named_parameters()]
        self._most = _ROOM * sum(value.numel() for value in module.state_dict().values()) + _MORE

    def vector(self, path: Path) -> Tensor:
        """One file as a vector; its frozen weights go into `frozen`. Raises: DataError that says what does not fit."""
        tensors = self._named(path, self._load(path))
        for part in self.layout.carried:
            if part.name not in tensors:
                raise DataError(f"{path}: {part.name} is missing; {self._wanted()}")
        for name, value in tensors.items():
            if name not in self._whole:
                raise DataError(f"{path}: {name} is nothing of the network's; {self._wanted()}")
            if tuple(value.shape) != self._whole[name]:
                raise DataError(f"{path}: {name} has shape {tuple(value.shape)}, not {self._whole[name]}; mend model")
            if value.is_complex() or value.dtype == torch.bool:
                raise DataError(f"{path}: {name} holds {str(value.dtype).removeprefix('torch.')}; save it as float32")
        self.frozen |= {name: tensors[name].float() for name in self.frozen if name in tensors}
        vector = self.layout.flatten(tensors)
        try:
            check_vector(vector, self.layout.size, str(path))
        except RangeError as error:
            raise DataError(f"{error}; leave such updates out of the folder, as an aggregator would") from None
        return vector

    def _wanted(self) -> str:
        first = ", ".join(part.name for part in self.layout.carried[:3])
        return f"name tensors as model's state dict does ({first}, ...), or mend model in updates.toml"

    def _load(self, path: Path) -> dict[str, Tensor]:
        readers: dict[str, Callable[[Path], dict[str, Tensor]]]
        readers = {".safetensors": load_file, ".npz": _npz, ".pt": _torch, ".pth": _torch}
        if path.suffix not in readers:
            known = ", ".join(readers)
            raise DataError(f"{path}: files of {path.suffix or 'no suffix'} are not read, but {known}; {_REMEDY}")
        try:
            if (size := _unpacked(path)) > self._most:
                raise DataError(f"{path}: holds {size:,} bytes, far more than the network has numbers; {_REMEDY}")
            return readers[path.suffix](path)
        except (SafetensorError, zipfile.BadZipFile, OSError, ValueError, EOFError, RuntimeError) as error:
            raise DataError(f"{path}: cannot be read as {path.suffix} ({one_line(error)}); {_REMEDY}") from None

    def _named(self, path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Tensors by name; a list of arrays (arr_0, arr_1, ...) has the order of the state dict, or of parameters."""
        if not tensors or any(not re.fullmatch(r"arr_\d+", name) for name in tensors):
            return tensors
        count = len(tensors)
        names = next((each for each in (list(self._whole), self._learnt) if len(each) == count), None)
        if names is None or set(tensors) != {f"arr_{at}" for at in range(count)}:
            raise DataError(
                f"{path}: {count} arrays without names, and the network's state dict has {len(self._whole)}; save all "
                "of them in its order, or by name"
            )
        return {name: tensors[f"arr_{at}"] for at, name in enumerate(names)}


def _unpacked(path: Path) -> int:
    """How many bytes reading it makes: what is packed may be small."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            return sum(one.file_size for one in packed.infolist())
    return path.stat().st_size


def _npz(path: Path) -> dict[str, Tensor]:
    with np.load(path, allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    if odd := [name for name, array in arrays.items() if array.dtype.kind not in "biufc"]:
        raise DataError(f"{path}: {odd[0]} holds {arrays[odd[0]].dtype}, which is no number; {_REMEDY}")
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def _torch(path: Path) -> dict[str, Tensor]:
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, ModuleNotFoundError, AttributeError):
        raise DataError(f"{path}: holds Python objects, which run code when they are read; {_REMEDY}") from None
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise DataError(f"{path}: holds {type(found).__name__}, and no table of tensors by name; {_REMEDY}")
    return {str(name): value.detach() for name, value in found.items()}


def one_line(error: Exception) -> str:
    """An error's first words, on one line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:120]
