"""What a run has that an exported file needs: its predictor, its config and its record."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, final

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.config.unread_keys import OUR_DATA
from assay.data.tabular.table_encoder import TableEncoder
from assay.data.text.text_encoder import TextEncoder
from assay.data.transform.normalize import Normalize
from assay.data.transform.transforms import Transforms
from assay.record.run_record import RunRecord
from assay.run.export.exportable import Encode, Exportable, takes_any_size
from assay.run.load import read_predictor
from assay.run.saved_config import read_config
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.run.predict.predictor import Predictor
    from assay.task.task import Task

FOLDERS: Final = (
    "assay.data.image_folder.ImageFolder",
    "assay.data.segmentation_folder.SegmentationFolder",
)
"""Sources that scale pictures as they decode them."""
"""The source that scales pictures while it decodes them."""


@final
@dataclass(frozen=True, eq=False)
class Original:
    """A run, read for export.

    Attributes:
        run_dir: Its directory.
        config: Its config, resolved.
        record: Its record.
        checkpoint: `best` or `last`.
        predictor: On the CPU, in eval mode, in float32.
        stored: The bare model in the type of its checkpoint.
        transforms: Of evaluation, after the scaling to `data.source.image_size`.
        own_data: The datamodule is somebody's own: samples come as the module got them.
    """

    run_dir: Path
    config: DictConfig
    record: RunRecord
    checkpoint: str
    predictor: Predictor
    stored: nn.Module
    transforms: Transforms = field(default_factory=Transforms)
    own_data: bool = False

    @property
    def spec(self) -> dict[str, Any]:
        """Node `spec`; empty where a datamodule of somebody's own tells none."""
        return self.predictor.spec

    @property
    def task(self) -> Task | None:
        """What was learnt, where that is known."""
        return task_of(self.spec["task"]) if self.spec else None

    @property
    def kind(self) -> str:
        """What the exported outputs are: `probabilities`, `values`, `embeddings` or `scores`."""
        return self.predictor.kind or "scores"

    @property
    def codec(self) -> Any:
        """Of a language model: texts to token ids and back."""
        return self.predictor.codec

    @property
    def encoder(self) -> TableEncoder | None:
        """Of a table."""
        encoder = self._encoder
        return encoder if isinstance(encoder, TableEncoder) else None

    @property
    def texts(self) -> TextEncoder | None:
        """Of texts, of which an exported model takes the token ids."""
        encoder = self._encoder
        return encoder if isinstance(encoder, TextEncoder) else None

    @property
    def _encoder(self) -> TableEncoder | TextEncoder | None:
        return None if self.predictor.preprocess is None else self.predictor.preprocess.encoder

    @property
    def normalize(self) -> Normalize:
        """What inputs are normalised with."""
        preprocess = self.predictor.preprocess
        return Normalize() if self.own_data or preprocess is None else preprocess.normalize

    @property
    def takes_any_size(self) -> bool:
        """The first transform brings pictures of any size to a fixed one."""
        return takes_any_size(self.transforms)

    def exportable(self, *, with_transforms: bool = True) -> Exportable:
        """The module to be traced.

        Args:
            with_transforms: Put the transforms of evaluation inside.
        """
        return Exportable(
            self.predictor,
            normalize=self.normalize,
            transforms=self.transforms if with_transforms else Transforms(),
            encode=None if self.encoder is None else Encode(self.encoder.columns),
        ).eval()


def read_original(
    run_dir: Path, checkpoint: Literal["best", "last"], trusted_packages: Sequence[str] = ()
) -> Original:
    """Read a run.

    Args:
        run_dir: Its directory, perhaps somebody else's.
        checkpoint: `best` or `last`.
        trusted_packages: As for `assay.load`.

    Raises:
        AssayError: There is no such run, its config names what is not trusted, or it holds no valid
            checkpoint.
    """
    record = RunRecord.load(run_dir)
    predictor = read_predictor(run_dir, checkpoint, "cpu", trusted_packages).requires_grad_(False)
    config = read_config(run_dir, trusted_packages)
    own_data = OmegaConf.select(config, "data._target_") != OUR_DATA
    stored = predictor.model
    if not {one.dtype for one in stored.state_dict().values() if one.is_floating_point()} <= {torch.float32}:
        predictor = copy.deepcopy(predictor).float()
    preprocess = predictor.preprocess
    chain = () if preprocess is None else preprocess.transforms.transforms
    return Original(
        run_dir=run_dir,
        config=config,
        record=record,
        checkpoint=checkpoint,
        predictor=predictor,
        stored=stored,
        transforms=Transforms() if own_data else Transforms([*_scaling(config), *chain]),
        own_data=own_data,
    )


def _scaling(config: DictConfig) -> list[v2.Resize]:
    """What the source does to pictures while it decodes them."""
    if OmegaConf.select(config, "data.source._target_") not in FOLDERS:
        return []
    size = OmegaConf.select(config, "data.source.image_size")
    return [] if size is None else [v2.Resize(list(size), antialias=True)]
