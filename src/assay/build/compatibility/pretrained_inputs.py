"""What inputs a job's pretrained weights were trained with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.build.model import asked_of_model, has_weights
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError

if TYPE_CHECKING:
    from omegaconf import DictConfig


def pretrained_inputs(config: DictConfig) -> dict[str, Any] | None:
    """Statistics and size of the inputs that the weights of a job were trained with.

    Args:
        config: The job; its data need not be known.

    Returns:
        `mean` and `std` (a value a channel), `size` (height and width) and `source`, in words; of a network
        for texts `tokenizer` and `padding`, see `assay.model.hf_text`, and `source`; None where there are no
        weights, or nobody knows.

    Raises:
        ConfigError: The model refuses its name or its weights.
    """
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
