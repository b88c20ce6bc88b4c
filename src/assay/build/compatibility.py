"""Do the chosen loss, model and data go together?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf

from assay.build.model import asked_of_model, has_weights
from assay.config.tree import walk
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError, ConfigError, DataError
from assay.task.task import LOGIT_KINDS, LOSS_KINDS
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn


_REAL_VALUED = (torch.nn.MSELoss, torch.nn.L1Loss, torch.nn.HuberLoss, torch.nn.SmoothL1Loss)
_OWN_UNIT = (
    *(torch.nn.PoissonNLLLoss, torch.nn.SoftMarginLoss, torch.nn.HingeEmbeddingLoss, torch.nn.KLDivLoss),
    *(torch.nn.BCELoss, torch.nn.BCEWithLogitsLoss, torch.nn.MultiLabelSoftMarginLoss),
)
"""Losses for counts, signs or probabilities."""
_STATED = (
    *("task", "input_shape", "num_classes", "num_targets", "num_train", "num_val", "num_test"),
    *("class_counts", "input_dtype", "vocab_size"),
)


def num_outputs(config: DictConfig, loss: nn.Module | None) -> int:
    """How many values the model must return for a sample: data and loss decide together."""
    return task_of(config.spec.task).num_outputs(config.spec, getattr(loss, "kind", None))


def check_fit(config: DictConfig, loss: Any) -> None:
    """Refuse a loss that cannot take the data's targets, or an augmentation its inputs."""
    task, name = task_of(config.spec.task), getattr(loss, "__name__", str(loss))
    kind = loss if isinstance(loss, type) else object
    standardized = OmegaConf.select(config, "data.standardize_targets")
    takes_values = task.has_real_targets or task.reconstructs
    key, message, hint = "loss", "", task.suits
    if config.spec.get("vocab_size"):
        _check_tokens(config)
    if issubclass(kind, _REAL_VALUED) and not takes_values:
        message = f"{name} compares real values, but the data has {task.in_words(config.spec)}"
    elif standardized and task.has_real_targets and issubclass(kind, _OWN_UNIT):
        message = f"{name} compares with the targets themselves, but would see (target - mean) / std"
        hint = "data.standardize_targets=false"
    elif problem := task.loss_problem(config.spec, loss):
        message, hint = problem
    elif task.reconstructs and standardized is False:
        key, message = "data.standardize_targets", f"a {task.name} has no targets but its inputs"
        hint = "data.transform.normalize=null leaves the inputs as they are"
    elif getattr(loss, "kind", None) in LOSS_KINDS - task.loss_kinds:
        message = f"{name} cannot be used with {task.in_words(config.spec)}"
    if message:
        raise ConfigError(message, key=key, hint=hint)


def _check_tokens(config: DictConfig) -> None:
    """Refuse what is for pictures or numbers, where inputs are token ids of texts."""
    augment = str(OmegaConf.select(config, "augment._target_") or "")
    if augment.startswith(("assay.", "torchvision.")):
        raise ConfigError(
            f"{augment.rpartition('.')[2]} changes numbers, and this data has token ids of texts",
            key="augment",
            hint="augment=none",
        )
    names = {entry.name for entry in walk(config.model, "model")}
    if names & {"input_shape", "in_features"} and "vocab_size" not in names:
        name = str(config.model.get("_target_")).rpartition(".")[2]
        raise ConfigError(
            f"{name} takes pictures or numbers, and this data has token ids of texts",
            key="model",
            hint="model=bag_of_embeddings, or model=text_transformer",
        )


def check_model(config: DictConfig, model: nn.Module | None) -> None:
    """Refuse a model with which the data's task would learn nothing."""
    if model is not None and (problem := task_of(config.spec.task).model_problem(model)):
        raise ConfigError(problem[0], key="model", hint=problem[1])


def check_outputs(config: DictConfig, loss: nn.Module, outputs: Sequence[int]) -> None:
    """Refuse a model that returns something else than this loss compares with the targets."""
    task, kind = task_of(config.spec.task), getattr(loss, "kind", None)
    if not (kind in LOGIT_KINDS or isinstance(loss, _REAL_VALUED) or task.reconstructs):
        return  # an embedding, or a loss of somebody's own, takes any width
    spec = config.spec
    wanted = task.output_shape(spec, int(spec.num_outputs))
    if tuple(outputs[1:]) == wanted:
        return
    sized = [
        entry.key
        for entry in walk(config.model, "model")
        if isinstance(entry.parent, DictConfig) and not entry.is_container and entry.raw == outputs[-1]
    ]
    hint = "let the model's last layer have ${spec.num_outputs} outputs"
    raise ConfigError(
        f"gives {list(outputs[1:])} values a sample; {type(loss).__name__} needs {list(wanted)} for "
        f"{task.in_words(spec)}",
        key=sized[0] if len(sized) == 1 and len(outputs) == 1 + len(wanted) else "model",
        hint="model=autoencoder gives as many as it takes" if task.reconstructs else hint,
    )


def check_declared(stated: Mapping[str, Any], config: DictConfig) -> None:
    """Refuse data that is not what its YAML states, which the job was checked with."""
    for name in _STATED if stated else ():
        if name == "class_counts" and not task_of(stated["task"]).by_class:
            continue  # how often each label is on is not stated
        said, found = stated.get(name), OmegaConf.select(config, f"spec.{name}")
        found = list(found) if isinstance(found, ListConfig) else found
        if said != found:
            raise DataError(
                f"data.spec: by it {name} is {said}; the data has {found}",
                hint="correct `spec` in the data's YAML, or leave it out: ~data.spec",
            )


def pretrained_inputs(config: DictConfig) -> dict[str, Any] | None:
    """Statistics and size of the inputs that the weights of a job were trained with."""
    if not has_weights(config):
        return None
    return _of_run(Path(str(config.model.weights))) or asked_of_model(config, "trained_on")


def _of_run(path: Path) -> dict[str, Any] | None:
    """Of the run that a path is the directory of, or lies in the folder `checkpoints` of."""
    run_dir = path.parent.parent if path.parent.name == "checkpoints" else path
    if not (run_dir / "config.yaml").is_file():
        return None
    try:
        spec: Any = load_mapping(run_dir / "config.yaml").get("spec") or {}
        if spec.get("vocab_size"):
            return None
        mean, std = tuple(map(float, spec["mean"])), tuple(map(float, spec["std"]))
        size = tuple(int(side) for side in spec["input_shape"])[1:]
    except (AssayError, KeyError, TypeError, ValueError):  # a config may be anybody's
        return None
    return {"mean": mean, "std": std, "size": size, "source": f"the run {run_dir}"}
