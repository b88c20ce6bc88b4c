"""What a job's fine-tuning comes to, in words, and what it cannot be done with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from assay.build.model import asked_of_model
from assay.build.trainer.num_processes import world_size
from assay.errors import ConfigError
from assay.finetune.gradual import Gradual
from assay.layer_depth import lies_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from assay.finetune.interface import FineTuning


def check_fine_tuning(config: DictConfig, finetune: FineTuning | None) -> None:
    """Refuse what would undo a fine-tuning without a word.

    Raises:
        ConfigError: Naming the key.
    """
    if finetune is None:
        return
    if config.trainer.get("sync_batchnorm"):
        raise ConfigError(
            "replaces batch norms by others that do not keep their statistics while they are frozen",
            key="trainer.sync_batchnorm",
            hint="trainer.sync_batchnorm=false, or finetune=none",
        )
    if isinstance(finetune, Gradual) and world_size(config) > 1:
        raise ConfigError(
            "several processes only exchange gradients of parameters that are trained from the start",
            key="finetune",
            hint="finetune=full (its layers learn the more slowly the deeper they lie), or device=cpu or gpu",
        )


def warnings_of(config: DictConfig, finetune: FineTuning | None, model: nn.Module) -> list[str]:
    """What is probably a mistake.

    Args:
        config: The job.
        finetune: Of the job.
        model: As `finetune` left it; its weights do not matter.
    """
    found: list[str] = []
    if finetune is None:
        return found
    option = _option(config)
    every = list(model.parameters())
    trained = [p for p in every if p.requires_grad]
    if _is_random(config) and (len(trained) < len(every) or isinstance(finetune, Gradual)):
        found.append(
            f"{option} keeps weights that were never trained: the model starts from random ones; "
            + (
                "model.weights=FILE, or the directory of a run, gives it better ones"
                if "weights" in config.model
                else "model=timm, torchvision or resnet18 take weights"
            )
        )
    epochs = OmegaConf.select(config, "trainer.max_epochs")
    last = finetune.last_change(model)
    if isinstance(epochs, int) and 0 < epochs <= last:
        found.append(
            f"{option} unfreezes the last layers in epoch {last}, counted from 0, but "
            f"trainer.max_epochs={epochs}: they stay as they are; finetune.every_n_epochs or "
            "finetune.schedule say when"
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
    """What is trained, and from where its weights come.

    Args:
        config: The job, with its `spec`.
        finetune: Of the job.
        model: As `finetune` left it; its weights do not matter, and it is not changed.
    """
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


def _is_random(config: DictConfig) -> bool:
    """Whether the model starts from random weights; one of somebody's own may have any."""
    target = str(config.model.get("_target_"))
    return (
        target.startswith(("assay.model.", "torch.", "torchvision.")) and config.model.get("weights") is None
    )
