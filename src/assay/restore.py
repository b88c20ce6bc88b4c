"""The model of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig, OmegaConf

from assay.assemble import model_only
from assay.errors import AssayError
from assay.record.checkpoint_file import CheckpointFile

if TYPE_CHECKING:
    from torch import nn

_PREFIX = "model."


def load(
    run: str | Path, *, checkpoint: str = "best", map_location: str | torch.device | None = None
) -> nn.Module:
    """The trained model of a run, in eval mode.

    Reads weights only: nothing in the checkpoint is executed.

    Args:
        run: Run directory.
        checkpoint: `best` or `last`; `last` is taken where a run kept no best one.
        map_location: Where to put the weights; by default the device that `device=auto` would choose.

    Returns:
        The model. Its input is what the run's own data gives: normalised, in the run's shape.

    Raises:
        AssayError: There is no such run, or it holds no valid checkpoint.
    """
    run_dir = Path(run)
    config = read_config(run_dir)
    device = torch.device(map_location) if map_location is not None else _fastest()
    path = run_dir / "checkpoints" / f"{checkpoint}.ckpt"
    if not path.is_file():
        path = path.with_name("last.ckpt")
    if not path.is_file():
        raise AssayError(
            f"{run_dir} holds no checkpoint", hint="train with callbacks=[default], which saves best and last"
        )
    state: dict[str, Any] = CheckpointFile().load_checkpoint(path, map_location=torch.device("cpu"))[
        "state_dict"
    ]
    model = model_only(config, run_dir)
    model.load_state_dict(
        {name.removeprefix(_PREFIX): value for name, value in state.items() if name.startswith(_PREFIX)}
    )
    dtype = next((value.dtype for value in state.values() if value.is_floating_point()), torch.float32)
    return model.to(device, dtype).eval()


def read_config(run_dir: Path) -> DictConfig:
    """A run's resolved config.

    Args:
        run_dir: Run directory.

    Raises:
        AssayError: There is none.
    """
    path = run_dir / "config.yaml"
    if not path.is_file():
        raise AssayError(
            f"{run_dir} is no run directory: it has no config.yaml",
            hint="runs lie under outputs/<name>/<date>/",
        )
    config = OmegaConf.load(path)
    if not isinstance(config, DictConfig):
        raise AssayError(f"{path} holds no mapping")
    return config


def _fastest() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    return torch.device("mps") if torch.backends.mps.is_available() else torch.device("cpu")
