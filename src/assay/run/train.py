"""Training: of overrides from Python, and of a composed job in this process or in several."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import pandas as pd
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.data import Dataset, TensorDataset

from assay.assemble.assembly import assemble
from assay.assemble.model import check_declared
from assay.assemble.node import build
from assay.assemble.trainer import check_distinct_state_keys, gpu_names, silence_lightning
from assay.assemble.trainer_options import num_local_processes
from assay.check.checker import Checker, check_job, make_prover
from assay.checkpoint.checkpoint_file import weights_sha256
from assay.config.serialize import (
    REPETITIONS,
    fingerprint_of,
    to_raw_dict,
    to_resolved_dict,
    to_yaml,
)
from assay.errors import ConfigError, explain_write_errors
from assay.files.atomic import write_text
from assay.files.checksum import seal_yaml
from assay.files.symlinks import open_append
from assay.quoting import quote_letters
from assay.record.provenance import describe_segment
from assay.record.run_directory import (
    LOG,
    create_run_directory,
    refuse_existing,
    remove_unfinished_files,
)
from assay.record.run_lock import lock_run
from assay.record.run_record import RunRecord, now
from assay.record.secrets import redact_tree
from assay.rooms import entries, entry, name_source
from assay.run.execute import choose_threads, execute, use_threads, verify_data_hash
from assay.run.result import RunResult, print_warnings
from assay.run.saved_config import interpolations
from assay.targets.allowed_targets import read_trusted_packages
from assay.targets.objects import (
    TARGET,
    current_objects,
    kind_of,
    object_kinds,
    placeholder,
    provide_objects,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lightning.pytorch.callbacks import Callback
    from numpy.typing import ArrayLike
    from omegaconf import DictConfig

    from assay.assemble.assembly import Assembly
    from assay.check.report import Proof
    from assay.compose.compose import Job

    Reuse = Callable[[RunRecord, Assembly], Path | None]
    Data = pd.DataFrame | Dataset[Any] | L.LightningDataModule | tuple[ArrayLike, ArrayLike]

log = logging.getLogger("assay")
_PLAIN = (bool, int, float, str, type(None))


def train(
    overrides: Sequence[str] = (),
    *,
    config_dir: str | Path | None = None,
    model: nn.Module | None = None,
    data: Data | None = None,
    callbacks: Sequence[Callback] = (),
    raise_errors: bool = True,
    reuse: bool = False,
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
        reuse: Take a finished run that is this one, if there is one, and train nothing: as `--reuse`.

    Returns:
        The scores, where the run directory is, and the trained `module`, `trainer` and `predictor`; these
        three are None where a finished run was taken.

    Raises:
        AssayError: The config, the data or the device cannot be used; nothing was written.
    """
    if isinstance(overrides, str):
        raise ConfigError(
            f"expected a list of overrides, got {overrides!r}",
            hint=f"assay.train([{overrides!r}])",
        )
    if reuse and (callbacks or model is not None):
        message = "an object given as model or callback may change what is trained"
        raise ConfigError(message, key="reuse", hint="leave one of them out")
    overrides = [quote_letters(word) for word in overrides]
    if config_dir:
        folder = Path(config_dir)
    else:
        folder = None
    objects = _as_objects(model, data)
    all_overrides = _with_objects(objects, overrides)
    with provide_objects(objects), name_source(all_overrides, folder):
        checker = Checker(folder)
        job = checker.job(all_overrides)
        proof = checker.check(job)
        job = replace(job, overrides=tuple(overrides))
        ask = None
        if reuse:
            ask = find_reuse(job, take=True)
        return train_job(job, proof, callbacks=callbacks, raise_errors=raise_errors, reuse=ask)


def _as_objects(model: nn.Module | None, data: Data | None) -> dict[str, Any]:
    if model is not None and not isinstance(model, nn.Module):
        raise ConfigError(
            f"model takes a torch.nn.Module or a LightningModule, not {model!r}",
            hint='name an option of the group: assay.train(["model=mlp"])',
        )
    if not (
        _is_pair(data) or isinstance(data, pd.DataFrame | Dataset | L.LightningDataModule | None)
    ):
        raise ConfigError(
            "data takes a pandas DataFrame, a torch Dataset, a LightningDataModule or (inputs, targets), "
            f"not a {type(data).__name__}",
            hint='name an option of the group: assay.train(["data=wine"])',
        )
    return {
        name: value for name, value in (("model", model), ("data", data)) if value is not None
    }


def _with_objects(objects: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Overrides, and those that put the objects into their places."""
    typed = [override.lstrip("+~").partition("=")[0] for override in overrides]
    chosen: list[str] = []
    placed: dict[str, list[str]] = {}
    if (model := objects.get("model")) is not None:
        node = "model"
        if isinstance(model, L.LightningModule):
            node = "module"
        placed["model"] = [
            *_object_overrides(node, "model", model),
            f"+{node}.digest={_digest(model)}",
        ]
    if (data := objects.get("data")) is not None:
        option, placed["data"] = _data_overrides(data)
        if option and "data" not in typed:
            chosen.append(f"data={option}")
        if option == "custom" and "data.num_workers" not in typed:
            # what is in memory needs no processes that read it
            chosen.append("data.num_workers=0")
    for argument, implied in placed.items():
        keys = [override.lstrip("+").partition("=")[0] for override in implied]
        if twice := next((key for key in typed if key in keys or f"{key}._target_" in keys), ""):
            raise ConfigError(
                f"given twice: as an override and as {argument}=OBJECT",
                key=twice,
                hint="leave one of them out",
            )
    return [
        *chosen,
        *overrides,
        *(override for implied in placed.values() for override in implied),
    ]


def _data_overrides(data: Any) -> tuple[str, list[str]]:
    """The option of group `data` that reads an object, and what puts it there."""
    if isinstance(data, L.LightningDataModule):
        return "", _object_overrides("data", "data", data)
    if isinstance(data, Dataset) and not _is_pair(data):
        return "custom", _object_overrides("data.source.dataset", "data", data)
    if _is_pair(data):
        option, path = ("arrays", "root")
    else:
        option, path = ("table", "path")
    return option, [f"data.source.{path}={placeholder(data)}"]


def _object_overrides(key: str, argument: str, value: Any) -> list[str]:
    return [
        f"{key}._target_={TARGET}",
        f"+{key}.argument={argument}",
        f'+{key}.kind="{kind_of(value)}"',
    ]


def _is_pair(data: Any) -> bool:
    """Whether data is inputs and targets, all in memory."""
    if type(data) is TensorDataset:
        pair = data.tensors
    else:
        pair = data
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
    gang: Any = None,
    reuse: Reuse | None = None,
) -> RunResult:
    """Train, test and record one composed experiment."""
    with use_threads(choose_threads(proof)):
        return run_job(
            *(job.view(), job.overrides, job.choices, proof),
            config_dir=job.config_dir,
            callbacks=callbacks,
            raise_errors=raise_errors,
            gang=gang,
            reuse=reuse,
        )


def find_reuse(job: Job, *, take: bool) -> Reuse | None:
    """What names a finished run that is this job, and takes it where that was asked for."""
    if take and num_local_processes(job.view()) > 1:
        message = "only valid for one run in one process; a sweep reuses runs by itself"
        raise ConfigError(message, key="--reuse", hint="leave it out")
    if not take and not entries("reuse"):
        return None
    return functools.partial(entry("reuse", "--reuse", "a finished run in place"), take=take)


def prove(config: DictConfig, overrides: Sequence[str]) -> Proof:
    """Check a job that was read from a run directory."""
    check_job(config)
    proof: Proof = make_prover().prove(config, overrides)
    return proof


def run_job(
    config: DictConfig,
    overrides: Sequence[str],
    chosen: Mapping[str, Any],
    proof: Proof,
    *,
    callbacks: Sequence[Callback] = (),
    raise_errors: bool,
    config_dir: str = "",
    data_sha256: str = "",
    micro_batch: Mapping[str, int] | None = None,
    gang: Any = None,
    reuse: Reuse | None = None,
) -> RunResult:
    """Run a composed job in this process, or on several where its device asks for that.

    `reuse` is asked before anything is written, and may name a finished run that is this job.
    """
    run_dir = Path(config.run_dir)
    processes = num_local_processes(config)
    if processes > 1 and (callbacks or object_kinds()):
        raise ConfigError(
            f"the job runs in {processes} processes of its own, which no object given in Python reaches",
            hint="train on one device, or name the class: +callbacks.mine._target_=my_package.MyCallback",
        )

    segment = functools.cache(begin_segment)

    @functools.cache  # it is asked for once more where a finished run is looked for
    def describe_run(assembly: Assembly | None) -> RunRecord:
        settled = config
        if assembly is not None:
            settled = assembly.config
        raw = to_raw_dict(settled)
        return RunRecord(
            run_id=run_dir.name,
            name=str(config.name),
            status="running",
            started=now(),
            seed=int(config.seed),
            fold=config.get("fold"),
            fingerprint=fingerprint_of(raw),
            config_fingerprint=fingerprint_of(raw, REPETITIONS),
            overrides=list(overrides),
            config_dir=config_dir,
            choices=dict(chosen),
            tags=[str(tag) for tag in config.get("tags") or []],
            interpolations=interpolations(config),
            objects=object_kinds(),
            data_sha256=data_sha256,
            micro_batch=dict(micro_batch or {}),
            **segment()[0],
        )

    @contextmanager
    def create_run(plain: Mapping[str, Any], assembly: Assembly | None) -> Iterator[RunRecord]:
        """Make the run directory: config, patch, a record that says `running`; be its only writer."""
        _, patch = segment()
        create_run_directory(run_dir)
        with lock_run(run_dir):
            refuse_existing(run_dir)  # somebody else may have been faster
            remove_unfinished_files(run_dir)  # of one that was killed before it had a record
            record = describe_run(assembly)
            write_run(
                run_dir, plain, record, {"code.patch": patch}, hint="hydra.run.dir=SOMEWHERE/ELSE"
            )
            # messages name it, however early a process of the run dies
            os.close(open_append(run_dir / LOG))
            yield record

    def find_finished(assembly: Assembly) -> Path | None:
        if reuse is None:
            return None
        record = describe_run(assembly)
        record.data_sha256 = verify_data_hash(assembly, record)
        return reuse(record, assembly)

    return run_parts(
        config,
        proof,
        create_run,
        find_finished,
        callbacks=callbacks,
        raise_errors=raise_errors,
        gang=gang,
    )


def begin_segment() -> tuple[dict[str, Any], str]:
    """What a segment of a run that begins now runs with, and the patch of its code."""
    return describe_segment(gpu_names(), torch.get_num_threads())


def run_parts(
    config: DictConfig,
    proof: Proof,
    opened: Callable[[Mapping[str, Any], Assembly | None], AbstractContextManager[RunRecord]],
    find_finished: Callable[[Assembly], Path | None] = lambda _: None,
    *,
    callbacks: Sequence[Callback] = (),
    raise_errors: bool,
    gang: Any = None,
) -> RunResult:
    """Train in this process, or in several; `opened` writes the run directory once the parts are built."""
    run_dir = Path(config.run_dir)
    report = proof.report
    print_warnings(report.warnings)
    if gang is None and int(config.trainer.get("num_nodes") or 1) > 1:
        raise ConfigError(
            "this process was started alone, but a job on several nodes must be started on each of them",
            key="trainer.num_nodes",
            hint="torchrun --nnodes=… -m assay train …, srun assay train …, or assay train -m … with "
            "hydra/launcher=slurm or hydra/launcher=ray",
        )
    if gang is not None or num_local_processes(config) > 1:
        build(config, "data").prepare_data()  # once, before several processes need it
        processes = entry("processes", "trainer.devices", "a job on several devices")
        with opened(to_resolved_dict(config), None):
            processes.train_in_gang(config, gang, report.warnings)
        return result_of(run_dir)
    with silence_lightning():
        assembly = assemble_job(
            config, datamodule=proof.datamodule, trainer=proof.trainer, parts=proof.parts
        )
        stated = report.spec
        if report.data_read:
            stated = {}
        check_declared(stated, assembly.config)
        if (finished := find_finished(assembly)) is not None:
            result = result_of(finished)
            return replace(result, reused_from=result.reused_from or str(finished))
        # From here on there is a run; everything that can be wrong with the config was found before.
        assembly.callbacks.extend(callbacks)
        names = [f"{type(one).__name__} {at}" for at, one in enumerate(assembly.callbacks)]
        check_distinct_state_keys(names, assembly.callbacks)
        with opened(assembly.plain, assembly) as record:
            execute(
                *(assembly, record, run_dir),
                raise_errors=raise_errors,
                warnings=report.warnings,
                callbacks=callbacks,
            )
    return result_of(run_dir, assembly)


def assemble_job(config: DictConfig, **options: Any) -> Assembly:
    """The objects of a job, with the callbacks that rooms add, such as one for a trial of a study."""
    assembly = assemble(config, **options)
    for make in entries("callbacks"):
        callback = make()
        if callback is not None:
            assembly.callbacks.insert(0, callback)
    return assembly


def write_run(
    run_dir: Path,
    plain: Mapping[str, Any],
    record: RunRecord,
    patches: Mapping[str, str],
    hint: str,
) -> None:
    """Write what a run is, without secrets; the record comes last."""
    with explain_write_errors(f"the run directory {run_dir}", hint):
        write_text(run_dir / "config.yaml", seal_yaml(to_yaml(redact_tree(plain))))
        write_text(run_dir / "overrides.yaml", to_yaml(redact_tree(record.overrides)))
        for name, patch in patches.items():
            if patch:
                write_text(run_dir / name, patch)
        record.save(run_dir)


def result_of(run_dir: Path, assembly: Assembly | None = None) -> RunResult:
    """What a run directory says."""
    record = RunRecord.load(run_dir)
    curves = run_dir / "metrics.csv"
    known: dict[str, Any] = {}
    if curves.is_file():
        known["curves"] = curves
    if assembly is not None:
        known["module"] = assembly.module
        known["trainer"] = assembly.trainer
        known["_trusted"] = read_trusted_packages(assembly.config)
    return RunResult(
        run_dir,
        overrides=tuple(record.overrides),
        **vars(record.outcome),
        parameters=record.model.get("parameters"),
        trainable=record.model.get("trainable_parameters"),
        notes=tuple(record.notes),
        baseline=record.baseline,
        threshold=record.threshold,
        _objects=current_objects(),
        **known,
    )
