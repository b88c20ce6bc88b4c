"""May a config call this target? Judged by its name and a table of places; as an object in `resolve`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from omegaconf.errors import OmegaConfBaseException

from assay.config.hydra_internals import is_whitelisted
from assay.config.omegaconf_internals import dereference, raw_value
from assay.config.tree import places
from assay.errors import ConfigError, first_line
from assay.quoting import is_dotted_path
from assay.targets.trust import KEY, is_library, is_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from omegaconf import DictConfig

    from assay.config.tree import Entry


LEAVES = tuple(
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

PLACES = (
    *("torch.nn", "torch.optim", "torch.utils.data"),
    *(f"torchvision.{name}" for name in ("models", "transforms", "datasets", "ops")),
    "torchmetrics",
    *(
        f"lightning.pytorch.{name}"
        for name in ("callbacks", "loggers", "strategies", "plugins", "profilers", "accelerators")
    ),
    *LEAVES,
    "assay_cluster.fsdp2",
)
"""Where the classes lie that a config may name."""

EXACT = (
    "assay.module.Module",
    *(
        f"{package}.{name}"
        for package in ("lightning", "lightning.pytorch")
        for name in ("Trainer", "LightningModule", "LightningDataModule")
    ),
)
"""Classes that a config may name elsewhere."""

FUNCTIONS = {
    # Reads weights only, and judges the run's config as it judges this one.
    "assay.load": ("model", "augment"),
    "assay.targets.objects.take": ("model", "module", "data"),
    "torch.tensor": (),
    "torch.ones": (),
    "torch.zeros": (),
    "torch.full": (),
    "torch.arange": (),
    "torch.linspace": (),
    "torchvision.models.get_model": (
        "model",
    ),  # looks a name up among torchvision's own builders
}
"""Functions that a config may name, and the slots they may fill; inside of other nodes all of them."""

HOMES = (
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
REFUSED = {
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
    """What a place in a config may hold."""

    bases: tuple[str, ...]
    words: str
    example: str
    homes: tuple[str, ...] = ()


_MODULE = "torch.nn.Module"
_PLAIN_TRANSFORMS = "torchvision.transforms.transforms"
_SLOTS = {
    "module": Slot(
        ("lightning.pytorch.LightningModule",), "a LightningModule", "assay.module.Module"
    ),
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
        ("assay.finetune.interface.FineTuning",),
        "a way of fine-tuning",
        "assay.finetune.freeze.Freeze",
    ),
    "callbacks": Slot(
        ("lightning.pytorch.Callback",),
        "a Lightning callback",
        "lightning.pytorch.callbacks.EarlyStopping",
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
        "assay.data.core.data_module.DataModule",
    ),
}
_ONE_A_NAME = ("callbacks", "logger", "metrics")
"""Groups whose options add up: `callbacks.NAME`."""
INSIDE = Slot(
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
    """The slot that a full key is, and what it may hold."""
    group, _, name = key.partition(".")
    is_slot = not name
    if group in _ONE_A_NAME:
        is_slot = bool(name) and "." not in name and "[" not in name
    slot = None
    if is_slot:
        slot = _SLOTS.get(group)
    if slot is not None:
        return group, slot
    return "", INSIDE


def is_allowed(path: str) -> bool:
    """Whether a dotted name lies where a config may look without trust; not yet whether it may be called."""
    return path in EXACT or path in FUNCTIONS or (is_within(path, PLACES) and path not in PLACES)


_KEY = re.compile(r"\$\{(?!spec\b)\.*[A-Za-z_][\w.\[\]]*\}", re.ASCII)
"""A plain interpolation of one key."""
_HOLDS = (
    "torch.nn, torch.optim, torchvision.{models,transforms,datasets,ops}, torchmetrics, "
    "lightning.pytorch.{callbacks,loggers,strategies,plugins,profilers}, assay"
)


def check_targets(config: DictConfig) -> None:
    """Refuse every target that lies neither where a config may look nor in a package the user trusts."""
    packages = read_trusted_packages(config)
    for key, target in find_targets(places(config)):
        check_name(key, target, packages)


def read_trusted_packages(config: DictConfig) -> tuple[str, ...]:
    """The packages that a job may import from, as `compose` or `read_config` wrote them into it."""
    return tuple(str(package) for package in config.get(KEY) or ())


def find_targets(entries: Iterable[Entry]) -> Iterator[tuple[str, Any]]:
    """Full key of each node that has a `_target_`, and the target."""
    for entry in entries:
        if entry.name != "_target_" or entry.raw is None or entry.is_missing:
            continue
        key = entry.key.removesuffix("_target_").removesuffix(".")
        raw = entry.raw
        if entry.is_interpolation:
            raw = _dereference_target(entry.node, str(raw), entry.key)
        check_trust(key, raw, entry.parent)
        yield key, raw


def check_trust(key: str, target: Any, node: Mapping[Any, Any]) -> None:
    """Refuse a node that brings its own trust."""
    if isinstance(target, str) and target in FUNCTIONS and KEY in node:
        raise ConfigError(
            "a config must not choose what is trusted", key=f"{key}.{KEY}", hint=f"{KEY}=[…]"
        )


def _dereference_target(written: Any, text: str, key: str) -> Any:
    """The plain text that an interpolated target takes."""
    hint = f"name the class directly: {key}=torch.nn.Identity"
    if not _KEY.fullmatch(text):
        raise ConfigError(
            f"expected plain text or ${{KEY}} as a target, got {text}", key=key, hint=hint
        )
    try:
        return raw_value(dereference(written))
    except OmegaConfBaseException as error:
        raise ConfigError(first_line(error), key=key, hint=hint) from error


def check_name(key: str, target: Any, packages: Sequence[str]) -> None:
    """Refuse one target by its name."""
    full_key = "_target_"
    if key:
        full_key = f"{key}._target_"
    slot, holds = slot_of(key)
    if not isinstance(target, str):
        raise ConfigError(
            "expected the dotted name of a class",
            key=full_key,
            hint=f"{full_key}={holds.example}",
        )
    if is_dotted_path(target) and (is_allowed(target) or is_within(target, packages)):
        if not is_whitelisted(target):
            hint = f"execution_whitelist([…, {target!r}]) where assay is called"
            raise ConfigError(
                f"{target!r} is not in Hydra's execution whitelist", key=full_key, hint=hint
            )
        return
    hint = f"a config may name classes of {_HOLDS}"
    if slot:
        hint = f"{full_key}={holds.example}"
    if not is_dotted_path(target):
        raise ConfigError(
            f"expected the dotted name of a class, got {target!r}", key=full_key, hint=hint
        )
    root = target.partition(".")[0]
    if is_library(root):
        reason = f"a config may name {holds.words}"
        if slot:
            reason = f"{slot} must be {holds.words}"
        raise ConfigError(f"{target!r} is not allowed: {reason}", key=full_key, hint=hint)
    raise ConfigError(
        f"{target!r} is not allowed: {root!r} is neither a known package nor one that you trust",
        key=full_key,
        hint=f"if it is your own: put {KEY}: [{root}] into conf/project.yaml, "
        f"or add {KEY}=[{root}] to a command that takes KEY=VALUE",
    )
