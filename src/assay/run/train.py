"""Training from Python: overrides, and objects in the place of options."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lightning as L
import pandas as pd
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.data import Dataset, TensorDataset

from assay.check.checker import Checker
from assay.checkpoint.checkpoint_file import weights_sha256
from assay.compose.origin import name_source
from assay.errors import ConfigError
from assay.quoting import quote_letters
from assay.run.execute import follow, run_job
from assay.run.gang import Plan, run_together
from assay.run.result import RunResult, print_warnings
from assay.targets.allowed_targets import read_trusted_packages
from assay.targets.objects import TARGET, kind_of, placeholder, provide_objects

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightning.pytorch.callbacks import Callback
    from numpy.typing import ArrayLike

    from assay.check.report import Proof
    from assay.compose.compose import Job
    from assay.run.gang import Gang
    from assay.run.world import World

    Data = pd.DataFrame | Dataset[Any] | L.LightningDataModule | tuple[ArrayLike, ArrayLike]

_PLAIN: Final = (bool, int, float, str, type(None))


def train(
    overrides: Sequence[str] = (),
    *,
    config_dir: str | Path | None = None,
    model: nn.Module | None = None,
    data: Data | None = None,
    callbacks: Sequence[Callback] = (),
    raise_errors: bool = True,
) -> RunResult:
    """Compose, train, test and record one experiment.

    Args:
        overrides: As on the command line: `["data=wine", "model=mlp", "optimizer.lr=0.01"]`.
        config_dir: Your own folder of config groups; `./conf` where there is one.
        model: Your own network, or a LightningModule. A copy of it is trained, so that the same call starts
            from the same weights again.
        data: A pandas DataFrame (`data.source.target` names its target), a torch Dataset, `(inputs, targets)`
            as numpy arrays or tensors, or a LightningDataModule. No config can make an object again: the
            record names its class, and `assay resume`, `reproduce` and `eval` of such a run say so; without
            the model, so do `predict` and `export`.
        callbacks: Objects that look on in this process, called after the callbacks of the config. `log.txt`
            names their classes; no config does, so `assay resume` and `assay reproduce` do without them.
        raise_errors: Let an exception of the training through, after it was recorded; else the result tells.

    Returns:
        The scores, where the run directory is, and the trained `module`, `trainer` and `predictor`.

    Raises:
        AssayError: The config, the data or the device cannot be used; nothing was written.
    """
    if isinstance(overrides, str):
        raise ConfigError(
            f"a list of overrides was expected, not {overrides!r}", hint=f"assay.train([{overrides!r}])"
        )
    overrides = [quote_letters(word) for word in overrides]
    folder, objects = Path(config_dir) if config_dir else None, _as_objects(model, data)
    all_overrides = _with_objects(objects, overrides)
    with provide_objects(objects), name_source(all_overrides, folder):
        checker = Checker(folder)
        job = checker.job(all_overrides)
        proof = checker.check(job)
        job = replace(job, overrides=tuple(overrides))
        return train_job(job, proof, callbacks=callbacks, raise_errors=raise_errors)


def _as_objects(model: nn.Module | None, data: Data | None) -> dict[str, Any]:
    if model is not None and not isinstance(model, nn.Module):
        raise ConfigError(
            f"model takes a torch.nn.Module or a LightningModule, not {model!r}",
            hint='name an option of the group: assay.train(["model=mlp"])',
        )
    if not (_is_pair(data) or isinstance(data, pd.DataFrame | Dataset | L.LightningDataModule | None)):
        raise ConfigError(
            "data takes a pandas DataFrame, a torch Dataset, a LightningDataModule or (inputs, targets), "
            f"not a {type(data).__name__}",
            hint='name an option of the group: assay.train(["data=wine"])',
        )
    return {name: value for name, value in (("model", model), ("data", data)) if value is not None}


def _with_objects(objects: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Overrides, and those that put the objects into their places."""
    typed = [override.lstrip("+~").partition("=")[0] for override in overrides]
    chosen: list[str] = []
    placed: dict[str, list[str]] = {}
    if (model := objects.get("model")) is not None:
        node = "module" if isinstance(model, L.LightningModule) else "model"
        placed["model"] = [*_object_overrides(node, "model", model), f"+{node}.digest={_digest(model)}"]
    if (data := objects.get("data")) is not None:
        option, placed["data"] = _data_overrides(data)
        if option and "data" not in typed:
            chosen.append(f"data={option}")
        if option == "custom" and "data.num_workers" not in typed:
            chosen.append("data.num_workers=0")  # what is in memory needs no processes that read it
    for argument, implied in placed.items():
        keys = [override.lstrip("+").partition("=")[0] for override in implied]
        if twice := next((key for key in typed if key in keys or f"{key}._target_" in keys), ""):
            raise ConfigError(
                f"given twice: as an override and as {argument}=OBJECT",
                key=twice,
                hint="leave one of them out",
            )
    return [*chosen, *overrides, *(override for implied in placed.values() for override in implied)]


def _data_overrides(data: Any) -> tuple[str, list[str]]:
    """The option of group `data` that reads an object, and what puts it there."""
    if isinstance(data, L.LightningDataModule):
        return "", _object_overrides("data", "data", data)
    if isinstance(data, Dataset) and not _is_pair(data):
        return "custom", _object_overrides("data.source.dataset", "data", data)
    option, path = ("arrays", "root") if _is_pair(data) else ("table", "path")
    return option, [f"data.source.{path}={placeholder(data)}"]


def _object_overrides(key: str, argument: str, value: Any) -> list[str]:
    return [f"{key}._target_={TARGET}", f"+{key}.argument={argument}", f'+{key}.kind="{kind_of(value)}"']


def _is_pair(data: Any) -> bool:
    """Whether data is inputs and targets, all in memory."""
    pair = data.tensors if type(data) is TensorDataset else data
    return isinstance(pair, tuple | list) and len(pair) == 2


def _digest(model: nn.Module) -> str:
    """Stands for a model's weights and its plain attributes: two that differ in these are two configs."""
    digest = hashlib.sha256()
    for name, part in model.named_modules():
        plain = {key: value for key, value in vars(part).items() if isinstance(value, _PLAIN)}
        digest.update(f"{name} {kind_of(part)} {sorted(plain.items())};".encode())
    # Those that are lazy have no weights yet.
    weights = {key: value for key, value in model.state_dict().items() if not is_lazy(value)}
    digest.update(weights_sha256(weights).encode())
    return digest.hexdigest()[:16]


def train_job(
    job: Job,
    proof: Proof,
    *,
    callbacks: Sequence[Callback] = (),
    raise_errors: bool,
    gang: Gang | None = None,
) -> RunResult:
    """Train, test and record one composed experiment."""
    print_warnings(proof.report.warnings)
    return run_job(
        *(job.to_config(), job.overrides, job.choices, proof),
        callbacks=callbacks,
        raise_errors=raise_errors,
        gang=gang,
    )


def train_together(
    world: World, checker: Checker, overrides: Sequence[str], *, raise_errors: bool
) -> RunResult | int:
    """Train as one of several processes: all compose the job, the first one checks and records it."""
    job: Job

    def prepare() -> Plan:
        nonlocal job
        job = checker.job(overrides)
        config = job.to_config()
        return Plan(config, read_trusted_packages(config))

    def lead(gang: Gang) -> RunResult:
        return train_job(job, checker.check(job), raise_errors=raise_errors, gang=gang)

    return run_together(world, prepare, lead, follow)
