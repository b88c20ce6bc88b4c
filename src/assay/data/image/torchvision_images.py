from __future__ import annotations

from tarfile import TarError
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import torch

from assay.data.core.samples import Samples
from assay.data.core.source import Source
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping


_FAILURES = (OSError, RuntimeError, ValueError, AssertionError, EOFError, LookupError, TarError)


class _Reader(Protocol):
    def __call__(self, root: str, *, train: bool, download: bool = ...) -> Any: ...


@final
class TorchvisionImages(Source):
    """A data set that torchvision holds in memory, in its official training and test subsets.

    Args:
        dataset: torchvision's class, such as `torchvision.datasets.CIFAR10`: called with `root`, `train` and
            `download`, and has `data` (`[N, H, W]` or `[N, H, W, C]`), `targets` and `classes`.
        root: Folder that holds, or is to hold, the files.
        download: Fetch the files if they are not there.
    """

    task: str = "multiclass"
    calls_with: Final = {
        "dataset": (
            1,
            dict.fromkeys(("train", "download"), "data.source.root=… data.source.download=…"),
        )
    }
    """How many values an argument is called with, and the names of others, with what to type instead."""

    def __init__(self, dataset: _Reader, root: str, download: bool = True) -> None:
        self._dataset = dataset
        self._root = root
        self._download = download

    def prepare(self) -> None:
        """Download what is missing."""
        if self._download:
            self._open(train=False, download=True)

    def read(self) -> Mapping[str, Samples]:
        """Splits `train` and `test`: inputs uint8 `[N, C, H, W]`, targets int64 `[N]`."""
        subsets = {}
        for subset in ("train", "test"):
            dataset = self._open(train=subset == "train")
            self.class_names = tuple(dataset.classes)
            images = torch.as_tensor(dataset.data)
            # CIFAR is a channels-last view of memory that lies channels first, so nothing is copied.
            if images.ndim == 3:
                images = images[:, None]
            else:
                images = images.permute(0, 3, 1, 2)
            targets = torch.as_tensor(dataset.targets, dtype=torch.int64)
            subsets[subset] = Samples(images.contiguous(), targets)
        return subsets

    def _open(self, *, train: bool, download: bool = False) -> Any:
        try:
            return self._dataset(self._root, train=train, download=download)
        except _FAILURES as error:
            reason = " ".join(str(error).split())
            hint = "data.source.download=true, or set data.source.root to a folder that has the files"
            if download:
                hint = f"put its files into {self._root}, or set data.source.root to a folder that has them"
            name = getattr(
                getattr(self._dataset, "func", self._dataset), "__name__", "the data set"
            )
            message = f"data.source.root={self._root}: {name} is missing or damaged: {reason}"
            raise DataError(message, hint=hint) from error
