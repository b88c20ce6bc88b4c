"""The datamodule of a job, and what it tells the rest of the config."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import lightning as L
import msgspec
import torch
from lightning.fabric.utilities.data import sized_len
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from omegaconf import DictConfig, OmegaConf, open_dict

from assay.build.compatibility import pretrained_inputs
from assay.build.node import build
from assay.build.recipe import add_recipe
from assay.build.run_length import run_length
from assay.config.tree import written_at
from assay.config.unread_keys import OUR_DATA, OUR_MODULE
from assay.data.data_module import DataModule
from assay.data.spec import Declared
from assay.errors import AssayError, ConfigError, DataError, one_line_of
from assay.targets.annotation import expected_by

if TYPE_CHECKING:
    from assay.data.spec import Spec

# What torchvision unpacks may be anybody's: no member leads out of the folder by `..` or a link. This is the
# default from Python 3.14 on.
tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)


def open_data(config: DictConfig, *, prepare: bool = True) -> L.LightningDataModule:
    """Build the datamodule and let it read."""
    L.seed_everything(config.seed, workers=True, verbose=False)
    inputs = pretrained_inputs(config) if config.data._target_ == OUR_DATA else None
    given = {} if inputs is None else {"pretrained_inputs": inputs}
    datamodule: L.LightningDataModule = build(config, "data", **given)
    try:
        if prepare:
            datamodule.prepare_data()
        datamodule.setup("fit")
    except (AssayError, MemoryError):
        raise
    except Exception as error:  # of somebody's own data set, transform or datamodule
        raise DataError(
            f"data: reading it fails: {one_line_of(error)}",
            hint="the same command with --debug shows the traceback",
        ) from error
    return datamodule


def open_declared(config: DictConfig) -> L.LightningDataModule:
    """The datamodule over the data as its YAML's `spec` describes it: nothing is read."""
    if not isinstance(config.data.spec, DictConfig):
        raise ConfigError("a mapping was expected", key="data.spec", hint="leave it out: ~data.spec")
    stated: Any = OmegaConf.to_container(config.data.spec, resolve=True)
    try:
        source = msgspec.convert(stated, Declared)
    except msgspec.ValidationError as error:
        name = str(error).partition(" - at `$.")[2].strip("`").partition("[")[0]
        key = written_at(config, f"data.spec.{name}") if name else "data.spec"
        given = OmegaConf.select(config, key)
        raise ConfigError(f"expected {expected_by(error)}, got {given}", key=key) from error
    with open_dict(config):
        if OmegaConf.select(config, "data.transform.normalize") in ("auto", "data"):
            config.data.transform.normalize = None  # there are no values to take a mean of
        config.data.standardize_targets = False
    datamodule: L.LightningDataModule = build(config, "data", source=source)
    try:
        datamodule.setup("fit")
    except DataError as error:
        counts = "num_samples" if stated.get("class_counts") is None else "class_counts"
        told = ", ".join(f"data.spec.{counts}.{part}" for part in stated[counts])
        raise DataError(f"{error.message} (by {told})", hint=error.hint) from error
    return datamodule


def describe(config: DictConfig, spec: Spec | None, own: OwnBatches | None = None) -> None:
    """Put what the data tells into the config as node `spec`."""
    if spec is not None:
        with open_dict(config):
            config.spec = {**spec.as_config(), **(own.as_config() if own is not None else {})}
            add_recipe(config, spec)
            length = run_length(config, spec.num_train)
            config.spec.steps_per_epoch = length.steps_per_epoch if length.is_known else None
            config.spec.total_steps = length.total_steps
    elif config.module._target_ == OUR_MODULE:
        raise ConfigError(
            "a datamodule needs a `spec` attribute after setup()", key="data", hint="see assay.data.spec.Spec"
        )


@final
@dataclass(frozen=True)
class OwnBatches:
    """What the loaders of training say."""

    count: int | None = None
    size: int | None = None

    def as_config(self) -> dict[str, int | None]:
        """For the config node `spec`."""
        return {"train_batches": self.count, "train_batch_size": self.size}


def own_batches(datamodule: L.LightningDataModule) -> OwnBatches | None:
    """Ask the loaders of a datamodule; nothing is read from them."""
    if isinstance(datamodule, DataModule):
        return None
    try:
        with torch.random.fork_rng(devices=[]):
            given: Any = datamodule.train_dataloader()
            loaders = given if isinstance(given, CombinedLoader) else CombinedLoader(given, "max_size_cycle")
            counts = [sized_len(loader) for loader in loaders.flattened]
            first: Any = loaders.flattened[0]
            size = getattr(first, "batch_size", None) or getattr(
                getattr(first, "batch_sampler", None), "batch_size", None
            )
    except Exception:  # it may need the trainer, or what the run makes first
        return OwnBatches()
    known = [count for count in counts if count is not None]
    least = min if loaders._mode == "min_size" else max
    count = least(known) if known and len(known) == len(counts) else None
    return OwnBatches(count, size if isinstance(size, int) and size > 0 else None)
