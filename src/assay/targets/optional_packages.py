"""Are the optional packages there that a choice needs? They are looked for, not imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from assay.config.tree import walk
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

Packages = tuple[tuple[str, ...], ...]
"""All of these are needed; of each, one of its names."""
_SCIPY: Packages = (("scipy",),)
_NEEDS: Mapping[str, Mapping[str, Packages]] = {
    "lightning": {
        "TensorBoardLogger": (("tensorboard", "tensorboardX"),),
        "MLFlowLogger": (("mlflow",),),
        "WandbLogger": (("wandb",),),
        "CometLogger": (("comet_ml",),),
        "LitLogger": (("litlogger",),),
        "RichProgressBar": (("rich",),),
        "RichModelSummary": (("rich",),),
        "DeepSpeedStrategy": (("deepspeed",),),
        "BitsandbytesPrecision": (("bitsandbytes",),),
        "TransformerEnginePrecision": (("transformer_engine",),),
        "XLAProfiler": (("torch_xla",),),
    },
    "torchvision": {
        "LSUN": (("lmdb",),),
        "CocoDetection": (("pycocotools",),),
        "CocoCaptions": (("pycocotools",),),
        "PCAM": (("h5py",),),
        **dict.fromkeys(
            ("Caltech101", "Flowers102", "ImageNet", "SBDataset", "StanfordCars", "SVHN"), _SCIPY
        ),
    },
}
"""What library classes need beside their own library, by the library and the name of the class."""
_XLA: Packages = (("torch_xla",),)
_STRATEGIES: Mapping[str, Packages] = {
    "deepspeed": (("deepspeed",),),
    **dict.fromkeys(("xla", "single_xla", "single_tpu"), _XLA),
}
_PRECISIONS: Mapping[str, Packages] = {"transformer-engine": (("transformer_engine",),)}
_PARQUET: Packages = (("pyarrow", "fastparquet"),)
_EXCEL: Packages = (("openpyxl",),)
_EXTRAS = {"openpyxl": "excel", "submitit": "slurm"}
"""Assay's extra that has a package, where it is called otherwise."""
_DISTRIBUTIONS = {
    "neptune_scale": "neptune-scale",
    "torch_fidelity": "torch-fidelity",
    "comet_ml": "comet-ml",
}


def check_installed(config: DictConfig) -> None:
    """Refuse a choice whose package is not there."""
    for entry in walk(config):
        if entry.name == "_target_" and not entry.is_missing and isinstance(entry.raw, str):
            home, _, rest = str(entry.raw).partition(".")
            packages = _NEEDS.get(home, {}).get(rest.rpartition(".")[2], ())
            require(entry.key.removesuffix("._target_"), rest.rpartition(".")[2], packages)
    for key, needs in (("trainer.strategy", _STRATEGIES), ("trainer.precision", _PRECISIONS)):
        value = _text(config, key)
        for name, packages in needs.items():
            if value.startswith(name):
                require(key, value, packages)
    if _text(config, "data.source._target_") == "assay.data.table.Table":
        for key in ("data.source.path", "data.source.test_path"):
            name = _text(config, key).lower()
            if name.endswith((".parquet", ".pq", ".feather")):
                require(key, "a Parquet or Feather file", _PARQUET)
            if name.endswith(".xlsx"):
                require(key, "an Excel file", _EXCEL)


def _text(config: DictConfig, key: str) -> str:
    value = OmegaConf.select(config, key, throw_on_missing=False)
    return value if isinstance(value, str) else ""


def require(key: str, what: str, packages: Packages) -> None:
    """Refuse what needs a package that is not there."""
    for names in packages:
        if not any(map(_is_there, names)):
            raise ConfigError(
                f"{what} needs the package {names[0]}, which is not installed",
                key=key,
                hint=install(key, names[0]),
            )


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # a broken one
        return False


def install(key: str, package: str) -> str:
    """What to type to install a package: assay's own extra, where there is one for the option."""
    option: Any = key.rpartition(".")[2]
    try:
        extras = importlib.metadata.metadata("assay").get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:
        extras = []
    for name in (option, _EXTRAS.get(package, package)):
        if name in extras:
            return f"pip install 'assay[{name}]'"
    return f"pip install {_DISTRIBUTIONS.get(package, package)}"
