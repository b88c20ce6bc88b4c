"""The model of a job, with its fine-tuning, what that comes to, and what it cannot be done with."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig, OmegaConf, open_dict

from assay.build.node import build, build_error
from assay.build.trainer_options import world_size
from assay.config.serialize import value_of
from assay.errors import ConfigError
from assay.finetune.gradual import Gradual
from assay.finetune.lora import LoRA, adapted_in, merge
from assay.layer_depth import lies_in
from assay.targets.allowed_targets import trusted_in
from assay.targets.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from assay.finetune.interface import FineTuning


def build_model(config: DictConfig) -> tuple[nn.Module, FineTuning | None]:
    """The model with its initial weights, frozen and adapted as `finetune` says, and what does so."""
    model: nn.Module = build(config, "model")
    finetune: FineTuning | None = build(config, "finetune") if config.get("finetune") else None
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
        raise ConfigError("a torch.nn.Module was expected", key="model")
    finetune = build(config, "finetune") if config.get("finetune") else None
    if isinstance(finetune, LoRA):
        finetune.insert(model, adapted_in(state))
    model.load_state_dict(state)
    merge(model)
    return model


def has_weights(config: DictConfig) -> bool:
    """Whether the model starts from weights that the key `model.weights` names."""
    node = config.get("model")
    if not isinstance(node, DictConfig):
        return False
    return str(node.get("_target_")).startswith("assay.model.") and node.get("weights") is not None


def asked_of_model(config: DictConfig, method: str) -> Any:
    """What the model's class answers before it is built; None where it has no such method, or no weights."""
    if not has_weights(config) or not isinstance(config.model.weights, str):  # its type is told elsewhere
        return None
    kind = resolve("model", str(config.model._target_), trusted_in(config))
    asked = getattr(kind, method, None)
    names = [] if asked is None else list(inspect.signature(asked).parameters)
    if asked is None or not all(name in config.model for name in names):
        return None
    try:
        return asked(**{name: value_of(config, f"model.{name}") for name in names})
    except (ValueError, ModuleNotFoundError) as error:
        raise build_error(error, config, "model") from error


def check_fine_tuning(config: DictConfig, finetune: FineTuning | None) -> None:
    """Refuse what would undo a fine-tuning without a word."""
    message = ""
    if finetune is not None and config.trainer.get("sync_batchnorm"):
        message = "replaces batch norms by others that do not keep their statistics while they are frozen"
        key, hint = "trainer.sync_batchnorm", "trainer.sync_batchnorm=false, or finetune=none"
    elif isinstance(finetune, Gradual) and world_size(config) > 1:
        message = "several processes only exchange gradients of parameters that are trained from the start"
        key = "finetune"
        hint = "finetune=full (its layers learn the more slowly the deeper they lie), or device=cpu or gpu"
    if message:
        raise ConfigError(message, key=key, hint=hint)


def warnings_of(config: DictConfig, finetune: FineTuning | None, model: nn.Module) -> list[str]:
    """What is probably a mistake."""
    found: list[str] = []
    if finetune is None:
        return found
    option = _option(config)
    every = list(model.parameters())
    trained = [p for p in every if p.requires_grad]
    target = str(config.model.get("_target_"))  # a custom model may start from any weights
    is_random = target.startswith(("assay.model.", "torch.", "torchvision."))
    is_random = is_random and config.model.get("weights") is None
    if is_random and (len(trained) < len(every) or isinstance(finetune, Gradual)):
        better = "model=timm, torchvision or resnet18 take weights"
        if "weights" in config.model:
            better = "model.weights=FILE, or the directory of a run, gives it better ones"
        found.append(
            f"{option} keeps weights that were never trained: the model starts from random ones; {better}"
        )
    epochs = OmegaConf.select(config, "trainer.max_epochs")
    last = finetune.last_change(model)
    if isinstance(epochs, int) and 0 < epochs <= last:
        found.append(
            f"{option} unfreezes the last layers in epoch {last}, counted from 0, but "
            f"trainer.max_epochs={epochs}: they stay as they are; finetune.every_n_epochs "
            "says when"
        )
    head = {name for name, p in model.named_parameters() if p.requires_grad}
    if OmegaConf.select(config, "param_groups.layer_decay") and all(
        lies_in(name, tuple(getattr(model, "head_names", ()))) for name in head
    ):
        found.append(
            f"param_groups.layer_decay changes nothing: {option} trains the head alone, "
            "which learns with the full lr"
        )
    return found


def notes_on_model(config: DictConfig, finetune: FineTuning | None, model: nn.Module) -> list[str]:
    """What is trained, and from where its weights come."""
    notes: list[str] = []
    if (download := asked_of_model(config, "to_download")) is not None:
        notes.append(f"model.weights={config.model.weights}: training will download {download.in_words()}")
    new = getattr(model, "new_layers", ())
    if new:
        notes.append(
            f"model.weights={config.model.weights}: not for {', '.join(new)}, which differ in shape "
            "and start from random values"
        )
    if finetune is not None:
        last = finetune.last_change(model)
        shares = [_share(model, finetune.trained(model, epoch)) for epoch in (0, last)]
        told = f"at first {shares[0]}; from epoch {last} on {shares[1]}" if last else shares[0]
        notes.append(f"{_option(config)}: {told}")
    return notes


def _option(config: DictConfig) -> str:
    names = {"Freeze": "head", "Gradual": "gradual", "LoRA": "lora"}
    kind = str(config.finetune.get("_target_")).rpartition(".")[2]
    if kind == "Freeze" and "trained" not in config.finetune:
        return "finetune=full"
    return f"finetune={names.get(kind, kind)}"


def _share(model: nn.Module, parameters: Sequence[nn.Parameter]) -> str:
    total, trained = (sum(p.numel() for p in some) for some in (model.parameters(), parameters))
    return f"{trained:,} of {total:,} parameters are trained ({100 * trained / max(1, total):.3g} %)"
