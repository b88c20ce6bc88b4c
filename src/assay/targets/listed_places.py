"""What a config may name without any trust, a table of plain names that `allowed_targets` asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from assay.targets.trust import within

LEAVES: Final = tuple(
    f"assay.{group}"
    for group in (
        "augment",
        "callbacks",
        "data",
        "finetune",
        "logger",
        "loss",
        "metrics",
        "model",
        "optimizer",
        "scheduler",
    )
)
"""assay's own groups; the rest of assay reads, writes and runs, and is not part of a config."""

PLACES: Final = (
    "torch.nn",
    "torch.optim",
    "torch.utils.data",
    "torchvision.models",
    "torchvision.transforms",
    "torchvision.datasets",
    "torchvision.ops",
    "torchmetrics",
    "lightning.pytorch.callbacks",
    "lightning.pytorch.loggers",
    "lightning.pytorch.strategies",
    "lightning.pytorch.plugins",
    "lightning.pytorch.profilers",
    "lightning.pytorch.accelerators",
    *LEAVES,
)
"""Where the classes lie that a config may name."""

EXACT: Final = (
    "assay.module.Module",
    *(
        f"{package}.{name}"
        for package in ("lightning", "lightning.pytorch")
        for name in ("Trainer", "LightningModule", "LightningDataModule")
    ),
)
"""Classes that a config may name elsewhere."""

FUNCTIONS: Final = {
    "assay.load": (
        "model",
        "augment",
    ),  # reads weights only, and judges the run's config as it judges this one
    "assay.targets.objects.take": ("model", "module", "data"),
    "torch.tensor": (),
    "torch.ones": (),
    "torch.zeros": (),
    "torch.full": (),
    "torch.arange": (),
    "torch.linspace": (),
    "torchvision.models.get_model": ("model",),  # looks a name up among torchvision's own builders
}
"""Functions that a config may name, and the slots they may fill; inside of other nodes all of them."""

HOMES: Final = (
    *(place for place in PLACES if place != "torch.utils.data"),
    # Not its datapipes: those decode pickles.
    "torch.utils.data.dataset",
    "torch.utils.data.sampler",
    "torch.utils.data.distributed",
    "lightning.pytorch.trainer",
    "lightning.pytorch.core",
    "lightning.fabric.plugins",  # cluster environments
    "assay.module",
)
"""Where a class must have been written; a library also holds what it imported from elsewhere."""

_BY_NAME = "loads a pretrained network by a path or name from the config, through a loader that unpickles"
REFUSED: Final = {
    "torchvision.datasets.lsun": "keeps its index as a pickle in the working directory and unpickles it",
    "torchmetrics.multimodal.clip_score": "runs the code of the model repository that it is given",
    "torchmetrics.functional.multimodal": "runs the code of the model repository that it is given",
    "torchmetrics.multimodal.clip_iqa": _BY_NAME,
    "torchmetrics.text.bert": _BY_NAME,
    "torchmetrics.text.infolm": _BY_NAME,
    "torchmetrics.text.rouge": "downloads a tokenizer and loads it",
    "torchmetrics.image.fid": _BY_NAME,
    "torchmetrics.image.kid": _BY_NAME,
    "torchmetrics.image.inception": _BY_NAME,
    "torchmetrics.image.mifid": _BY_NAME,
    "torchmetrics.image.lpip": "unpickles its weights",
    "torchmetrics.image.dists": "unpickles its weights",
    "torchmetrics.image.arniqa": "unpickles its weights",
    "torchmetrics.image.perceptual_path_length": "unpickles its weights",
    "torchmetrics.functional.image": "unpickles its weights",
    "torchmetrics.audio.dnsmos": "downloads a network and runs it",
    "torchmetrics.audio.srmr": "loads a network of another package",
}
"""Modules whose classes fit a slot but read more than numbers, and why."""


@final
@dataclass(frozen=True)
class Slot:
    """What a place in a config may hold.

    Attributes:
        bases: Classes of which it must be a subclass.
        homes: Or where it is written, for what has no common base class.
        words: For messages.
        example: What to type.
    """

    bases: tuple[str, ...]
    words: str
    example: str
    homes: tuple[str, ...] = ()


_MODULE = "torch.nn.Module"
_PLAIN_TRANSFORMS = "torchvision.transforms.transforms"
_SLOTS: Final = {
    "module": Slot(("lightning.pytorch.LightningModule",), "a LightningModule", "assay.module.Module"),
    "model": Slot((_MODULE,), "a torch.nn.Module", "torch.nn.Sequential"),
    "loss": Slot((_MODULE,), "a torch.nn.Module", "torch.nn.CrossEntropyLoss"),
    "optimizer": Slot(("torch.optim.Optimizer",), "a torch.optim.Optimizer", "torch.optim.AdamW"),
    "scheduler": Slot(
        ("torch.optim.lr_scheduler.LRScheduler",),
        "a scheduler of torch.optim.lr_scheduler",
        "torch.optim.lr_scheduler.StepLR",
    ),
    "param_groups": Slot(
        (),
        "parameter groups",
        "assay.optimizer.parameter_groups.ParameterGroups",
        ("assay.optimizer.parameter_groups",),
    ),
    "finetune": Slot(
        ("assay.finetune.interface.FineTuning",), "a way of fine-tuning", "assay.finetune.freeze.Freeze"
    ),
    "callbacks": Slot(
        ("lightning.pytorch.Callback",), "a Lightning callback", "lightning.pytorch.callbacks.EarlyStopping"
    ),
    "logger": Slot(
        ("lightning.pytorch.loggers.Logger",),
        "a Lightning logger",
        "lightning.pytorch.loggers.TensorBoardLogger",
    ),
    "metrics": Slot(
        ("torchmetrics.Metric", "torchmetrics.MetricCollection"),
        "a torchmetrics metric",
        "torchmetrics.MetricCollection",
    ),
    "augment": Slot(
        (_MODULE,),
        "a transform of batches",
        "torchvision.transforms.v2.MixUp",
        ("assay.augment", _PLAIN_TRANSFORMS),
    ),
    "trainer": Slot(("lightning.pytorch.Trainer",), "Lightning's Trainer", "lightning.Trainer"),
    "data": Slot(
        ("lightning.pytorch.LightningDataModule",),
        "a LightningDataModule",
        "assay.data.data_module.DataModule",
    ),
}
_ONE_A_NAME = ("callbacks", "logger", "metrics")
"""Groups whose options add up: `callbacks.NAME`."""
INSIDE: Final = Slot(
    (
        _MODULE,
        "torch.optim.Optimizer",
        "torch.optim.lr_scheduler.LRScheduler",
        "torch.utils.data.Dataset",
        "torch.utils.data.Sampler",
        "torchmetrics.Metric",
        "lightning.pytorch.Callback",
        "lightning.pytorch.loggers.Logger",
        "lightning.pytorch.profilers.Profiler",
        "lightning.pytorch.accelerators.Accelerator",
        "lightning.pytorch.strategies.Strategy",
        "lightning.pytorch.plugins.precision.precision.Precision",
        "lightning.pytorch.plugins.layer_sync.LayerSync",
        "lightning.fabric.plugins.environments.ClusterEnvironment",
    ),
    "a module, optimizer, scheduler, data set, transform, metric, callback or a part of the Trainer",
    "torch.nn.ReLU",
    (*LEAVES, _PLAIN_TRANSFORMS),
)
"""What may stand inside of another node."""


def slot_of(key: str) -> tuple[str, Slot]:
    """The slot that a full key is, and what it may hold.

    Args:
        key: Of a node, such as `model`, `callbacks.ema`, `model._args_[0]`.

    >>> [slot_of(key)[0] for key in ("model", "callbacks.ema", "model._args_[0]", "mine")]
    ['model', 'callbacks', '', '']
    """
    group, _, rest = key.partition(".")
    own = bool(rest) and "." not in rest and "[" not in rest if group in _ONE_A_NAME else not rest
    slot = _SLOTS.get(group) if own else None
    return (group, slot) if slot is not None else ("", INSIDE)


def is_allowed(path: str) -> bool:
    """Whether a dotted name lies where a config may look without trust; not yet whether it may be called.

    Args:
        path: Such as `torch.nn.Linear`.
    """
    return path in EXACT or path in FUNCTIONS or (within(path, PLACES) and path not in PLACES)
