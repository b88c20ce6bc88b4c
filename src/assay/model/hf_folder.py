"""Finds the weights and settings of a text encoder: a Hugging Face folder, or a run. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.config.yaml_file import load_mapping
from assay.errors import ConfigError, first_line
from assay.files.symlinks import read_whole

KINDS = ("bert", "distilbert", "electra", "modernbert", "mpnet", "roberta")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_FILES = "config.json, model.safetensors and tokenizer.json"
_OTHERS = "choose other weights: model.weights=FOLDER"
_OF_OTHERS = frozenset(
    {
        *(
            "architectures",
            "auto_map",
            "custom_pipelines",
            "dtype",
            "finetuning_task",
            "id2label",
        ),
        *("label2id", "num_labels", "problem_type", "task_specific_params", "torch_dtype"),
        "transformers_version",
    }
)
"""Keys of config.json about heads, code and files, not about the network."""


def find_weights_folder(weights: Any) -> Path:
    """Return the Hugging Face folder, or the run, that contains weights."""
    if weights is None:
        raise ConfigError(
            "auto reads config.json in the folder of model.weights, which is not set",
            key="model.config",
            hint="model.weights=FOLDER; for random weights 'model.config={model_type: bert}'",
        )
    path = Path(str(weights))
    if path.is_file():
        if path.parent.name == "checkpoints":
            return path.parent.parent
        return path.parent
    if not path.is_dir():
        raise ConfigError(
            f"{weights} is not a folder; expected one with {_FILES}, which is not downloaded",
            key="model.weights",
            hint="model.weights=FOLDER; `hf download NAME --local-dir FOLDER` fetches one",
        )
    return path


def find_weights_file(weights: str) -> Path:
    """Return the file of weights, or the run that contains them."""
    path = Path(weights)
    if path.is_file() or is_run_directory(find_weights_folder(weights)):
        return path
    for name in _WEIGHTS:
        if (path / name).is_file():
            return path / name
    hint = "load it with transformers, and model.save_pretrained(FOLDER, max_shard_size='100GB')"
    raise ConfigError(f"{path} has no {_WEIGHTS[0]}", key="model.weights", hint=hint)


def is_run_directory(folder: Path) -> bool:
    """Return whether a folder is a run directory."""
    return (folder / "config.yaml").is_file()


def read_network_settings(weights: Any) -> dict[str, Any]:
    """Read sizes and settings of a network, as plain values."""
    folder = find_weights_folder(weights)
    if is_run_directory(folder):
        node = load_mapping(folder / "config.yaml").get("model") or {}
        config = node.get("config")
        if isinstance(config, Mapping):
            settings = {**config}
        else:
            settings = {}
        if not settings or not _is_plain(settings):
            raise ConfigError(
                f"{folder} is not a run of model=hf_text", key="model.weights", hint=_OTHERS
            )
        return settings
    path = folder / "config.json"
    try:
        settings = json.loads(read_whole(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} cannot be read: {first_line(error)}",
            key="model.weights",
            hint=f"a folder with {_FILES}, as save_pretrained of transformers writes it",
        ) from error
    if not isinstance(settings, dict):
        raise ConfigError(
            f"{path} does not describe a network", key="model.weights", hint=_OTHERS
        )
    network = {
        name: value
        for name, value in settings.items()
        if name not in _OF_OTHERS and name[:1] != "_"
    }
    if not _is_plain(network):
        raise ConfigError(
            f"{path} holds values that are not plain settings of a network",
            key="model.weights",
            hint=_OTHERS,
        )
    check_network_kind(network, f"{path}: ")
    return network


def check_network_kind(settings: Mapping[str, Any], where: str = "") -> None:
    """Refuse networks that are not supported text encoders."""
    kind = settings.get("model_type")
    if kind not in KINDS:
        raise ConfigError(
            f"{where}model_type is {kind!r}, which is not a supported text encoder",
            key="model.config",
            hint=f"one of {', '.join(KINDS)}; for images use model=timm",
        )


def _is_plain(value: Any) -> bool:
    """Return whether a value has nothing that a config would call or resolve, and nothing missing."""
    if isinstance(value, dict):
        return all(
            name[:1] != "_" and "${" not in name and _is_plain(item)
            for name, item in value.items()
        )
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not isinstance(value, str) or ("${" not in value and value != "???")
