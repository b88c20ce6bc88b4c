"""One job, from config to finished record."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lightning as L
import pandas as pd
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.data import Dataset, TensorDataset

from assay.build.assembly import assemble
from assay.build.compatibility import check_declared
from assay.build.node import build
from assay.build.trainer import check_told_apart, gpu_names, quiet
from assay.build.trainer_options import num_local_processes
from assay.callbacks.pruning import Pruned, Pruning
from assay.check.checker import Checker
from assay.check.job import check_job
from assay.check.prove import Prover
from assay.checkpoint.container import weights_sha256
from assay.compose.origin import located
from assay.config.serialize import config_fingerprint, fingerprint, known, to_yaml
from assay.errors import AssayError, ConfigError
from assay.files.symlinks import appending
from assay.loop.stop_on_signal import StoppedBySignal
from assay.record.log_file import FILE, log_file
from assay.record.outcome import TRIAL
from assay.record.provenance import refuse_uncommitted, segment_here
from assay.record.run_directory import RunDirectory, refuse_existing
from assay.record.run_lock import writing
from assay.record.run_record import RunRecord, now
from assay.record.secrets import redact_tree
from assay.run import ranks
from assay.run.execute import execute, fit_and_test, stop_on_signals
from assay.run.result import RunResult, say_warnings
from assay.run.saved_config import interpolations, read_config
from assay.targets.allowed_targets import trusted_in
from assay.targets.objects import TARGET, given, in_sight, kind_of, kinds, place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lightning.pytorch.callbacks import Callback
    from numpy.typing import ArrayLike
    from omegaconf import DictConfig

    from assay.build.assembly import Assembly
    from assay.check.report import Proof
    from assay.compose.job_composer import Job

    Data = pd.DataFrame | Dataset[Any] | L.LightningDataModule | tuple[ArrayLike, ArrayLike]

log = logging.getLogger("assay")
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
    folder, objects = Path(config_dir) if config_dir else None, _as_objects(model, data)
    whole = _with_objects(objects, overrides)
    with given(objects), located(whole, folder):
        checker = Checker(folder)
        job = checker.job(whole)
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
    return {name: one for name, one in (("model", model), ("data", data)) if one is not None}


def _with_objects(objects: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Overrides, and those that put the objects into their places."""
    typed = [one.lstrip("+~").partition("=")[0] for one in overrides]
    chosen: list[str] = []
    placed: dict[str, list[str]] = {}
    if (model := objects.get("model")) is not None:
        node = "module" if isinstance(model, L.LightningModule) else "model"
        placed["model"] = [*_node(node, "model", model), f"+{node}.digest={_digest(model)}"]
    if (data := objects.get("data")) is not None:
        option, placed["data"] = _of_data(data)
        if option and "data" not in typed:
            chosen.append(f"data={option}")
        if option == "custom" and "data.num_workers" not in typed:
            chosen.append("data.num_workers=0")  # what is in memory needs no processes that read it
    for argument, implied in placed.items():
        keys = [one.lstrip("+").partition("=")[0] for one in implied]
        if twice := next((key for key in typed if key in keys or f"{key}._target_" in keys), ""):
            raise ConfigError(
                f"given twice: as an override and as {argument}=OBJECT",
                key=twice,
                hint="leave one of them out",
            )
    return [*chosen, *overrides, *(one for implied in placed.values() for one in implied)]


def _of_data(data: Any) -> tuple[str, list[str]]:
    """The option of group `data` that reads an object, and what puts it there."""
    if isinstance(data, L.LightningDataModule):
        return "", _node("data", "data", data)
    if isinstance(data, Dataset) and not _is_pair(data):
        return "custom", _node("data.source.dataset", "data", data)
    option, path = ("arrays", "root") if _is_pair(data) else ("table", "path")
    return option, [f"data.source.{path}={place(data)}"]


def _node(key: str, argument: str, one: Any) -> list[str]:
    return [f"{key}._target_={TARGET}", f"+{key}.argument={argument}", f'+{key}.kind="{kind_of(one)}"']


def _is_pair(data: Any) -> bool:
    """Whether data is inputs and targets, all in memory."""
    given = data.tensors if type(data) is TensorDataset else data
    return isinstance(given, tuple | list) and len(given) == 2


def _digest(model: nn.Module) -> str:
    """Stands for a model's weights and its plain attributes: two that differ in these are two configs."""
    digest = hashlib.sha256()
    for name, part in model.named_modules():
        plain = {key: one for key, one in vars(part).items() if isinstance(one, _PLAIN)}
        digest.update(f"{name} {kind_of(part)} {sorted(plain.items())};".encode())
    # Those that are lazy have no weights yet.
    made = {key: one for key, one in model.state_dict().items() if not is_lazy(one)}
    digest.update(weights_sha256(made).encode())
    return digest.hexdigest()[:16]


def train_job(job: Job, proof: Proof, *, callbacks: Sequence[Callback] = (), raise_errors: bool) -> RunResult:
    """Train, test and record one composed experiment."""
    say_warnings(proof.report.warnings)
    return run_job(
        *(job.to_config(), job.overrides, job.choices, proof),
        callbacks=callbacks,
        raise_errors=raise_errors,
    )


def prove(config: DictConfig, overrides: Sequence[str]) -> Proof:
    """Check a job that was read from a run directory."""
    check_job(config)
    return Prover().prove(config, overrides)


def run_job(
    config: DictConfig,
    overrides: Sequence[str],
    chosen: Mapping[str, Any],
    proof: Proof,
    *,
    callbacks: Sequence[Callback] = (),
    raise_errors: bool,
    data_sha256: str = "",
    micro_batch: Mapping[str, int] | None = None,
) -> RunResult:
    """Run a composed job in this process, or on several where its device asks for that."""
    kept = {"data_sha256": data_sha256, "micro_batch": dict(micro_batch or {})}
    if num_local_processes(config) > 1 and (callbacks or kinds()):
        raise ConfigError(
            f"the job runs in {num_local_processes(config)} processes of its own, which no object given in "
            "Python reaches",
            hint="train on one device, or name the class: +callbacks.mine._target_=my_package.MyCallback",
        )

    opened = partial(_create_run, config, overrides, chosen, kept)
    return run_parts(config, proof, opened, callbacks=callbacks, raise_errors=raise_errors)


def run_parts(
    config: DictConfig,
    proof: Proof,
    opened: Callable[[Mapping[str, Any], Assembly | None], AbstractContextManager[RunRecord]],
    *,
    callbacks: Sequence[Callback] = (),
    raise_errors: bool,
) -> RunResult:
    """Train in this process, or in several; `opened` writes the run directory once the parts are built."""
    run_dir, report, processes = Path(config.run_dir), proof.report, num_local_processes(config)
    if processes > 1:
        build(config, "data").prepare_data()  # once, before several processes need it
        with opened(known(config), None):
            _launch(config, processes, report.warnings)
        return result_of(run_dir)
    with quiet():
        assembly = _assembled(config, datamodule=proof.datamodule, trainer_for=proof.trainer_for)
        check_declared({} if report.data_read else report.spec, assembly.config)
        # From here on there is a run; everything that can be wrong with the config was found before.
        _add(callbacks, assembly)
        with opened(assembly.plain, assembly) as record:
            execute(
                *(assembly, record, run_dir),
                raise_errors=raise_errors,
                warnings=report.warnings,
                callbacks=callbacks,
            )
    return result_of(run_dir, assembly)


def _assembled(config: DictConfig, **options: Any) -> Assembly:
    """The objects of a job; of one that is a trial of a study, with what reports to it."""
    assembly = assemble(config, **options)
    if TRIAL in os.environ:
        _all_callbacks(assembly).insert(0, Pruning(**json.loads(os.environ[TRIAL])))
    return assembly


def _add(callbacks: Sequence[Callback], assembly: Assembly) -> None:
    """Add callbacks given as objects."""
    every = _all_callbacks(assembly)
    every.extend(callbacks)
    check_told_apart([f"{type(one).__name__} {at}" for at, one in enumerate(every)], every)


def _all_callbacks(assembly: Assembly) -> list[Callback]:
    callbacks: list[Callback] = assembly.trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
    return callbacks


@contextmanager
def _create_run(
    config: DictConfig,
    overrides: Sequence[str],
    chosen: Mapping[str, Any],
    kept: Mapping[str, Any],
    plain: Mapping[str, Any],
    _: Assembly | None,
) -> Iterator[RunRecord]:
    """Make the run directory (config, overrides, patch, a record that says `running`); be its only writer."""
    run_dir = Path(config.run_dir)
    segment, patch = segment_here(gpu_names(), torch.get_num_threads())
    if config.get("enforce_clean_git"):
        refuse_uncommitted(Path.cwd(), segment["git"], patch)
    directory = RunDirectory.create(run_dir)
    with writing(run_dir):
        refuse_existing(run_dir)  # somebody else may have been faster
        directory.remove_unfinished()  # of one that was killed before it had a record
        record = RunRecord(
            run_id=run_dir.name,
            name=str(config.name),
            status="running",
            started=now(),
            seed=int(config.seed),
            fingerprint=fingerprint(config),
            config_fingerprint=config_fingerprint(config),
            overrides=list(overrides),
            choices=dict(chosen),
            tags=[str(tag) for tag in config.get("tags") or []],
            interpolations=interpolations(config),
            objects=kinds(),
            **segment,
            **kept,
        )
        write_run(directory, plain, record, {"code.patch": patch}, hint="hydra.run.dir=SOMEWHERE/ELSE")
        os.close(appending(directory.log))  # messages name it, however early a process of the run dies
        yield record


def write_run(
    directory: RunDirectory,
    plain: Mapping[str, Any],
    record: RunRecord,
    patches: Mapping[str, str],
    hint: str,
) -> None:
    """Write what a run is, without secrets; the record comes last."""
    try:
        directory.write(directory.config.name, to_yaml(redact_tree(plain)))
        directory.write("overrides.yaml", to_yaml(redact_tree(record.overrides)))
        for name, patch in patches.items():
            if patch:
                directory.write(name, patch)
        record.save(directory.path)
    except OSError as error:
        raise AssayError(
            f"the run directory {directory.path} cannot be written: {error.strerror}", hint=hint
        ) from error


def run_rank(run_dir: Path, trusted_packages: Sequence[str]) -> int:
    """One rank of a distributed job whose run directory is there already."""
    config = read_config(run_dir, trusted_packages)
    first = int(os.environ["RANK"]) == 0
    record = RunRecord.load(run_dir)
    try:
        with writing(run_dir, shared=True), quiet():
            assembly = _assembled(config, prepare=False)
            if first:
                write_run(RunDirectory(run_dir), assembly.plain, record, {}, hint="")
                execute(assembly, record, run_dir, raise_errors=False)
            else:
                with stop_on_signals(assembly):
                    fit_and_test(assembly, record, run_dir)
    except (StoppedBySignal, Pruned):
        return 0  # as all others do: one that fails would have the launcher end the rest
    except AssayError as error:
        if first:
            record.failed_by(error)
            record.finished = now()
            record.save(run_dir)
        return error.exit_code
    return 0 if not first or record.status in ("finished", "interrupted", "pruned") else 1


def _launch(config: DictConfig, processes: int, warnings: Sequence[str]) -> None:
    """Run a job on several processes; one that is told to stop before they train has no other word of it."""
    run_dir = Path(config.run_dir)
    with log_file(run_dir / FILE):
        for warning in warnings:
            log.warning("%s", warning)
    end = ranks.launch(run_dir, processes, trusted_in(config))
    record = RunRecord.load(run_dir)
    if end.startswith("SIG") and record.status == "running":
        record.interrupted_by(end)
        record.finished = now()
        record.save(run_dir)


def result_of(run_dir: Path, assembly: Assembly | None = None) -> RunResult:
    """What a run directory says."""
    record, curves = RunRecord.load(run_dir), RunDirectory(run_dir).metrics
    return RunResult(
        run_dir,
        overrides=tuple(record.overrides),
        **vars(record.outcome),
        parameters=record.model.get("parameters"),
        trainable=record.model.get("trainable_parameters"),
        notes=tuple(record.notes),
        baseline=record.baseline,
        threshold=record.threshold,
        curves=curves if curves.is_file() else None,
        module=assembly.module if assembly else None,
        trainer=assembly.trainer if assembly else None,
        _objects=in_sight(),
        _trusted=trusted_in(assembly.config) if assembly else (),
    )
