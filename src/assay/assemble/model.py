"""Build a job's model and its fine-tuning; refuse parts that do not fit."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

from assay.assemble.node import build, build_error
from assay.config.serialize import value_of
from assay.config.tree import walk
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError, ConfigError, DataError
from assay.finetune.lora import LoRA, adapted_names, merge
from assay.layer_depth import repeated_blocks
from assay.targets.resolve import resolve_class
from assay.task.task import LOSS_KINDS
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from assay.finetune.interface import FineTuning


def build_model(config: DictConfig) -> tuple[nn.Module, FineTuning | None]:
    """The model with its initial weights, frozen and adapted as `finetune` says, and what does so."""
    model: nn.Module = build(config, "model")
    finetune: FineTuning | None = None
    if config.get("finetune"):
        finetune = build(config, "finetune")
    if finetune is not None:
        try:
            finetune.prepare(model)
        except ValueError as error:
            raise build_error(error, config, "finetune") from error
    return model, finetune


def build_trained(config: DictConfig, state: Mapping[str, Tensor]) -> nn.Module:
    """The model of a run with its trained weights, as plain as one that was never fine-tuned."""
    if has_weights(config):
        config = config.copy()
        with open_dict(config):
            config.model.weights = None  # they are about to be replaced, and may be gone by now
    model: Any = build(config, "model")
    if not isinstance(model, torch.nn.Module):
        raise ConfigError("expected a torch.nn.Module", key="model")
    finetune = None
    if config.get("finetune"):
        finetune = build(config, "finetune")
    if isinstance(finetune, LoRA):
        finetune.insert(model, adapted_names(state))
    model.load_state_dict(state)
    merge(model)
    return model


def has_weights(config: DictConfig) -> bool:
    """Whether the model starts from weights that the key `model.weights` names."""
    node = config.get("model")
    if not isinstance(node, DictConfig):
        return False
    return (
        str(node.get("_target_")).startswith("assay.model.") and node.get("weights") is not None
    )


def query_model_class(config: DictConfig, method: str) -> Any:
    """Call a method of the model's class before it is built; None without such a method or weights."""
    # its type is checked elsewhere
    if not has_weights(config) or not isinstance(config.model.weights, str):
        return None
    kind = resolve_class("model", config.model)
    query = getattr(kind, method, None)
    names = []
    if query is not None:
        names = list(inspect.signature(query).parameters)
    if query is None or not all(name in config.model for name in names):
        return None
    try:
        return query(**{name: value_of(config, f"model.{name}") for name in names})
    except (ValueError, ModuleNotFoundError) as error:
        raise build_error(error, config, "model") from error


def notes_on_model(
    config: DictConfig, finetune: FineTuning | None, model: nn.Module
) -> list[str]:
    """Notes on which parameters are trained, and where the weights come from."""
    notes: list[str] = []
    if (download := query_model_class(config, "to_download")) is not None:
        notes.append(
            f"model.weights={config.model.weights}: training will download {download.in_words()}"
        )
    if new := getattr(model, "new_layers", ()):
        notes.append(
            f"model.weights={config.model.weights}: not for {', '.join(new)}, which differ in shape "
            "and start anew"
        )
    if finetune is not None:
        total, trained = (
            sum(p.numel() for p in some)
            for some in (model.parameters(), finetune.trained(model, 0))
        )
        notes.append(
            f"{finetune_option(config)}: {trained:,} of {total:,} parameters are trained at first"
        )
    return notes


def finetune_option(config: DictConfig) -> str:
    """The option that is typed for a fine-tuning."""
    names = {"Freeze": "head", "Gradual": "gradual", "LoRA": "lora"}
    kind = str(config.finetune.get("_target_")).rpartition(".")[2]
    if kind == "Freeze" and "trained" not in config.finetune:
        return "finetune=full"
    return f"finetune={names.get(kind, kind)}"


REAL_VALUED = (torch.nn.MSELoss, torch.nn.L1Loss, torch.nn.HuberLoss, torch.nn.SmoothL1Loss)
_OWN_UNIT = (
    *(
        torch.nn.PoissonNLLLoss,
        torch.nn.SoftMarginLoss,
        torch.nn.HingeEmbeddingLoss,
        torch.nn.KLDivLoss,
    ),
    *(torch.nn.BCELoss, torch.nn.BCEWithLogitsLoss, torch.nn.MultiLabelSoftMarginLoss),
)
"""Losses for counts, signs or probabilities."""
_OF_CLASSES = (torch.nn.CrossEntropyLoss, torch.nn.NLLLoss, torch.nn.MultiMarginLoss)
_STATED = (
    *("task", "input_shape", "num_classes", "num_targets", "num_train", "num_val", "num_test"),
    *("class_counts", "input_dtype", "vocab_size"),
)


def num_outputs(config: DictConfig, loss: nn.Module | None) -> int:
    """How many values the model must return for a sample: data and loss decide together."""
    return task_of(config.spec.task).num_outputs(config.spec, getattr(loss, "kind", None))


_LARGEST_CODES = {"bf16-true": 256, "16-true": 2048}
"""Up to which a floating type has all integers; a model gets its inputs in it, codes among them."""


def check_fit(config: DictConfig, loss: Any) -> None:
    """Refuse a loss that cannot take the data's targets, or an augmentation its inputs."""
    task = task_of(config.spec.task)
    name = getattr(loss, "__name__", str(loss))
    kind: type = object
    if isinstance(loss, type):
        kind = loss
    standardized = OmegaConf.select(config, "data.standardize_targets")
    takes_values = task.has_real_targets or task.reconstructs
    key = "loss"
    message = ""
    hint = task.suits
    if config.spec.get("vocab_size"):
        _check_tokens(config)
    most = _LARGEST_CODES.get(str(OmegaConf.select(config, "trainer.precision")))
    largest = max(config.spec.get("cardinalities") or [0])
    if most is not None and largest > most:
        raise ConfigError(
            f"16-bit numbers hold codes up to {most:,}, but a column of the data has {largest:,} categories",
            key="trainer.precision",
            hint="precision=bf16, which is mixed; or data.source.max_categories=" + str(most),
        )
    if issubclass(kind, REAL_VALUED) and not takes_values:
        message = f"{name} compares real values, but the data has {task.in_words(config.spec)}"
    elif standardized and task.has_real_targets and issubclass(kind, _OF_CLASSES):
        message = f"{name} compares classes, but the data has {task.in_words(config.spec)}"
    elif standardized and task.has_real_targets and issubclass(kind, _OWN_UNIT):
        message = (
            f"{name} compares with the targets themselves, but would see (target - mean) / std"
        )
        hint = "data.standardize_targets=false"
    elif task.reconstructs and standardized is False:
        key = "data.standardize_targets"
        message = f"a {task.name} has no targets but its inputs"
        hint = "data.transform.normalize=null leaves the inputs as they are"
    elif getattr(loss, "kind", None) in LOSS_KINDS - task.loss_kinds:
        message = f"{name} cannot be used with {task.in_words(config.spec)}"
    if message:
        raise ConfigError(message, key=key, hint=hint)


def _check_tokens(config: DictConfig) -> None:
    """Refuse what is for pictures or numbers, where inputs are token ids of texts."""
    augment = str(OmegaConf.select(config, "augment._target_") or "")
    if augment.startswith(("assay.", "torchvision.")):
        message = (
            f"{augment.rpartition('.')[2]} changes numbers, but this data has token ids of texts"
        )
        raise ConfigError(message, key="augment", hint="augment=none")
    names = {entry.name for entry in walk(config.model, "model")}
    if names & {"input_shape", "in_features"} and "vocab_size" not in names:
        name = str(config.model.get("_target_")).rpartition(".")[2]
        message = f"{name} takes pictures or numbers, but this data has token ids of texts"
        raise ConfigError(
            message, key="model", hint="model=bag_of_embeddings, or model=text_transformer"
        )


def equal_blocks(model: nn.Module) -> list[nn.Module]:
    """Repeated blocks of a model of which another one has as many parameters, of the same shapes."""
    blocks = list(repeated_blocks(model))
    kinds = [
        (type(block), *(parameter.shape for parameter in block.parameters())) for block in blocks
    ]
    return [block for block, kind in zip(blocks, kinds, strict=True) if kinds.count(kind) > 1]


def check_declared(stated: Mapping[str, Any], config: DictConfig) -> None:
    """Refuse data that differs from what its YAML states."""
    if not stated:
        return
    for name in _STATED:
        if name == "class_counts" and not task_of(stated["task"]).by_class:
            continue  # how often each label is on is not stated
        expected = stated.get(name)
        actual = OmegaConf.select(config, f"spec.{name}")
        if isinstance(actual, ListConfig):
            actual = list(actual)
        if expected != actual:
            raise DataError(
                f"data.spec: {name} should be {expected}, but the data has {actual}",
                hint="correct `spec` in the data's YAML, or leave it out: ~data.spec",
            )


def pretrained_inputs(config: DictConfig) -> dict[str, Any] | None:
    """Statistics and size of the inputs that the weights of a job were trained with."""
    if not has_weights(config):
        return None
    return _inputs_of_run(Path(str(config.model.weights))) or query_model_class(
        config, "trained_on"
    )


def takes_codes(config: DictConfig) -> bool:
    """Whether the model of a job takes categories of a table as codes, which no augmentation may mix."""
    if OmegaConf.select(config, "augment._target_") is not None or not config.get("model"):
        return False
    return any(entry.name == "cardinalities" for entry in walk(config.model, "model"))


def _inputs_of_run(path: Path) -> dict[str, Any] | None:
    """Read the inputs of the run that a path belongs to: its directory, or a file in its `checkpoints`."""
    run_dir = path
    if path.parent.name == "checkpoints":
        run_dir = path.parent.parent
    if not (run_dir / "config.yaml").is_file():
        return None
    try:
        spec: Any = load_mapping(run_dir / "config.yaml").get("spec") or {}
        if spec.get("vocab_size"):
            return None
        mean = tuple(map(float, spec["mean"]))
        std = tuple(map(float, spec["std"]))
        size = tuple(int(side) for side in spec["input_shape"])[1:]
    except (AssayError, KeyError, TypeError, ValueError):  # the config is untrusted
        return None
    return {"mean": mean, "std": std, "size": size, "source": f"the run {run_dir}"}
