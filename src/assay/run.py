"""One job, from config to finished record."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import time
import traceback
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint, WeightAveraging
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from omegaconf import DictConfig, OmegaConf

from assay import ranks
from assay.assemble import DATA_EXTRAS, assemble, build
from assay.callbacks.stop_on_signal import StopOnSignal, StoppedBySignal
from assay.check.fit import check_stated
from assay.check.job import check_job
from assay.check.prove import Prover
from assay.check.target import trusted_in
from assay.config.compose import choices, compose, job_config
from assay.config.fingerprint import fingerprint
from assay.config.interpolations import interpolations
from assay.config.origin import located
from assay.continuation import logger_ids, pick_up, same_data, same_logs
from assay.errors import AssayError, ConfigError
from assay.quiet import quiet
from assay.record.checkpoint_file import CheckpointFile
from assay.record.checksum import sha256
from assay.record.files import files_of
from assay.record.log_file import log_file
from assay.record.provenance import git_state, lock_sha256, machine, packages, refuse_uncommitted
from assay.record.run_directory import RunDirectory, refuse_existing
from assay.record.run_lock import writing
from assay.record.run_record import RunRecord
from assay.record.secrets import redact_tree
from assay.record.weights import weights_sha256
from assay.restore import read_config
from assay.summary import say_start

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    import lightning as L

    from assay.assemble import Assembly
    from assay.check.report import Report

log = logging.getLogger("assay")


@dataclass(frozen=True)
class RunResult:
    """What a run came to.

    Attributes:
        run_dir: Where everything about it lies.
        status: `finished`, `failed` or `interrupted`.
        metrics: Last value of each scalar, such as `test/accuracy`.
        best: Monitored metric, its value and the epoch of the best checkpoint; empty without one.
        overrides: What was typed.
        seconds: From start to end.
        reason: How it ended, when not well.
        signal: Name of the signal that interrupted it.
    """

    run_dir: Path
    status: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    seconds: float = 0.0
    reason: str = ""
    signal: str = ""

    @property
    def exit_code(self) -> int:
        """0 for a finished run, 130 for one stopped by hand, 143 for one told to stop, 1 otherwise."""
        interrupted = 143 if self.signal in ("SIGTERM", "SIGUSR1") else 130
        return {"finished": 0, "interrupted": interrupted}.get(self.status, 1)


def train(
    overrides: Sequence[str] = (), *, config_dir: str | Path | None = None, raise_errors: bool = True
) -> RunResult:
    """Compose, train, test and record one experiment.

    Args:
        overrides: As on the command line: `["data=wine", "model=mlp", "optimizer.lr=0.01"]`.
        config_dir: Your own folder of config groups; `./conf` where there is one.
        raise_errors: Let an exception of the training through, after it was recorded; else the result tells.

    Returns:
        The scores, and where the run directory is.

    Raises:
        AssayError: The config, the data or the device cannot be used; nothing was written.
    """
    if isinstance(overrides, str):
        raise ConfigError(
            f"a list of overrides was expected, not {overrides!r}", hint=f"assay.train([{overrides!r}])"
        )
    folder = Path(config_dir) if config_dir else None
    with located(overrides, folder):
        composed = compose(overrides, folder)
        return run_job(job_config(composed), overrides, choices(composed.hydra), raise_errors=raise_errors)


def run_job(
    config: DictConfig,
    overrides: Sequence[str],
    chosen: Mapping[str, Any],
    *,
    raise_errors: bool,
    report: Report | None = None,
    data_sha256: str = "",
) -> RunResult:
    """Run a composed job in this process, or on several where its device asks for that.

    Args:
        config: The job.
        overrides: What was typed.
        chosen: Which option of each group.
        raise_errors: As for `train`.
        report: What `check` found, where the job was checked already; it is checked here otherwise.
        data_sha256: What the data must be, where that is known.

    Raises:
        AssayError: As for `train`.
    """
    run_dir = Path(config.run_dir)
    refuse_existing(run_dir)
    datamodule = None
    if report is None:
        check_job(config)
        prover = Prover()
        report, datamodule = prover.prove(config, overrides), prover.datamodule
    processes = ranks.count(config)
    if processes > 1:
        prepare(config)
        begin(run_dir, config, overrides, chosen, data_sha256)
        with writing(run_dir):
            ranks.launch(run_dir, processes, trusted_in(config))
        return result_of(run_dir)
    with quiet():
        assembly = assemble(config, datamodule=datamodule)
        check_stated({} if report.data_read else report.spec, assembly.config)
        # From here on there is a run; everything that can be wrong with the config was found before.
        record = begin(run_dir, assembly.config, overrides, chosen, data_sha256)
        with writing(run_dir):
            _execute(assembly, record, run_dir, raise_errors=raise_errors)
    return result_of(run_dir)


def go_on(config: DictConfig, record: RunRecord, *, raise_errors: bool) -> RunResult:
    """Go on with a run in its own directory.

    Args:
        config: Its job.
        record: What the directory says, and last in `resumed` from where to go on; not yet written.
        raise_errors: As for `train`.

    Raises:
        AssayError: The run cannot go on as it is asked to; nothing was written.
    """
    run_dir = Path(config.run_dir)
    check_job(config)
    prover = Prover()
    report = prover.prove(config, record.resumed[-1]["overrides"])
    record.fingerprint = fingerprint(config)
    record.interpolations = interpolations(config)
    same_logs(config, record)
    processes = ranks.count(config)
    if processes > 1:
        prepare(config)
        write_config(RunDirectory(run_dir), config)
        record.save(run_dir)
        ranks.launch(run_dir, processes, trusted_in(config))
        return result_of(run_dir)
    with quiet():
        assembly = assemble(config, datamodule=prover.datamodule)
        check_stated({} if report.data_read else report.spec, assembly.config)
        same_data(assembly, record)
        write_config(RunDirectory(run_dir), assembly.config)
        record.save(run_dir)
        _execute(assembly, record, run_dir, raise_errors=raise_errors)
    return result_of(run_dir)


def prepare(config: DictConfig) -> None:
    """Download data once, before several processes need it.

    Args:
        config: The job.
    """
    build(config, "data", without=DATA_EXTRAS).prepare_data()


def begin(
    run_dir: Path,
    config: DictConfig,
    overrides: Sequence[str],
    chosen: Mapping[str, Any],
    data_sha256: str = "",
) -> RunRecord:
    """Make the run directory: config, overrides, patch, and a record that says `running`.

    Args:
        run_dir: Where.
        config: The job.
        overrides: What was typed.
        chosen: Which option of each group.
        data_sha256: As for `run_job`.

    Raises:
        AssayError: There is a run already, or the directory cannot be made.
    """
    git, patch = git_state(Path.cwd())
    if config.get("enforce_clean_git"):
        refuse_uncommitted(Path.cwd(), git, patch)
    directory = RunDirectory.create(run_dir)
    record = RunRecord(
        run_id=run_dir.name,
        name=str(config.name),
        status="running",
        started=_now(),
        seed=int(config.seed),
        fingerprint=fingerprint(config),
        data_sha256=data_sha256,
        overrides=list(overrides),
        choices=dict(chosen),
        tags=[str(tag) for tag in config.tags or []],
        git=git,
        patch_sha256=hashlib.sha256(patch.encode("utf-8", "surrogateescape")).hexdigest() if patch else "",
        lock_sha256=lock_sha256(Path.cwd()),
        packages=packages(),
        machine=machine(_gpu_names(), torch.get_num_threads()),
        interpolations=interpolations(config),
    )
    try:
        write_config(directory, config)
        directory.write("overrides.yaml", OmegaConf.to_yaml(OmegaConf.create(list(overrides))))
        if patch:
            directory.write("code.patch", patch)
        record.save(run_dir)
    except OSError as error:
        raise AssayError(
            f"the run directory {run_dir} cannot be written: {error.strerror}",
            hint="hydra.run.dir=SOMEWHERE/ELSE",
        ) from error
    return record


def write_config(directory: RunDirectory, config: DictConfig) -> None:
    """Write `config.yaml`, resolved as far as the data is known.

    Args:
        directory: The run directory.
        config: The job.
    """
    directory.write(directory.config.name, OmegaConf.to_yaml(config, resolve="spec" in config))


def _execute(assembly: Assembly, record: RunRecord, run_dir: Path, *, raise_errors: bool) -> None:
    """Train, test, and say in the record how it ended, whatever happens."""
    start = time.perf_counter()
    with log_file(run_dir / "log.txt"):
        try:
            record.model = _parameters(assembly.module)
            record.data_sha256 = same_data(assembly, record)
            log.info("run %s: %s", record.run_id, " ".join(record.overrides) or "no overrides")
            for note in record.resumed[-1]["notes"] if record.resumed else ():
                log.warning("%s", note)
            say_start(assembly, record)
            with _signals(assembly):
                _fit_and_test(assembly, record, run_dir)
            record.status = "finished"
        except StoppedBySignal as stop:
            record.status, record.signal = "interrupted", stop.name
            record.reason = "stopped by hand" if stop.name == "SIGINT" else str(stop)
        except (KeyboardInterrupt, SystemExit) as stop:
            # Lightning turns Ctrl-C into SystemExit once it has shut its loops down, rich a closed output.
            by_hand = isinstance(stop, KeyboardInterrupt) or isinstance(stop.__context__, KeyboardInterrupt)
            record.status = "interrupted"
            record.reason = "stopped by hand" if by_hand else "its output was closed"
            record.signal = "SIGINT" if by_hand else ""
        except Exception as error:
            record.status, record.reason = "failed", _one_line(error)
            log.error("%s", traceback.format_exc())
            if raise_errors:
                raise
        finally:
            record.seconds = round(time.perf_counter() - start, 3)
            record.finished = _now()
            if not record.checkpoints:
                _note_checkpoints(assembly, record, run_dir)
            log.info("%s after %.1f s %s", record.status, record.seconds, record.reason)
            record.files = files_of(run_dir)
            record.save(run_dir)


def _fit_and_test(assembly: Assembly, record: RunRecord, run_dir: Path) -> None:
    trainer, module, datamodule = assembly.trainer, assembly.module, assembly.datamodule
    plain = OmegaConf.to_container(assembly.config, resolve="spec" in assembly.config)
    for logger in trainer.loggers:
        if type(logger).__name__ not in record.loggers:  # MLflow refuses what is not as it was
            logger.log_hyperparams(redact_tree(plain))
    record.loggers = logger_ids(trainer)
    if record.loggers and trainer.is_global_zero:
        record.save(run_dir)  # now, for a run that is killed says nothing later
    checkpoint = pick_up(assembly, record, run_dir)
    trainer.fit(module, datamodule=datamodule, ckpt_path=checkpoint, weights_only=True)
    if trainer.state.status == "interrupted":
        raise KeyboardInterrupt
    record.metrics.update(_scalars(trainer.callback_metrics))
    loss = record.metrics.get("train/loss", 0.0)
    if not math.isfinite(loss):
        raise AssayError(
            f"the training loss became {loss}",
            hint="lower optimizer.lr, set trainer.gradient_clip_val=1.0, or look with debug=anomaly",
        )
    # Noted now, for the test puts the callbacks back to where they were at the best checkpoint.
    if trainer.is_global_zero:
        _note_checkpoints(assembly, record, run_dir)
        if isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):  # others hold shards
            record.weights_sha256 = weights_sha256(module.state_dict())
    best = _best_checkpoint(trainer)
    path = best.best_model_path if best is not None and best.best_model_path else None
    if path and any(isinstance(callback, WeightAveraging) for callback in trainer.callbacks):  # type: ignore[attr-defined]  # a plain attribute
        # Lightning 2.6 would test the weights from before the averaging, which lie in the checkpoint, too.
        module.load_state_dict(CheckpointFile().load_checkpoint(path)["state_dict"])
        path = None
    spec = getattr(datamodule, "spec", None)
    if spec is None or spec.num_test:
        trainer.test(module, datamodule=datamodule, ckpt_path=path, verbose=False, weights_only=True)
        record.metrics.update(_scalars(trainer.callback_metrics))
    record.matrices = dict(getattr(module, "matrices", {}))


def _signals(assembly: Assembly) -> AbstractContextManager[None]:
    """Stop after a step, with a checkpoint, when told to."""
    callbacks: list[Any] = assembly.trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
    stops = (callback for callback in callbacks if isinstance(callback, StopOnSignal))
    return next((stop.watching() for stop in stops), nullcontext())


def _best_checkpoint(trainer: L.Trainer) -> ModelCheckpoint | None:
    """The callback that keeps the best checkpoint, where there is one."""
    kept = (callback for callback in trainer.checkpoint_callbacks if isinstance(callback, ModelCheckpoint))
    return next((callback for callback in kept if callback.monitor is not None), None)


def _note_checkpoints(assembly: Assembly, record: RunRecord, run_dir: Path) -> None:
    folder = (run_dir / "checkpoints").resolve()
    for callback in assembly.trainer.checkpoint_callbacks:
        if isinstance(callback, StopOnSignal) and callback.received and callback.path.is_file():
            record.checkpoints["last"] = callback.path.name
        elif isinstance(callback, ModelCheckpoint):
            role = "last" if callback.monitor is None else "best"
            for name, kept in ((role, callback.best_model_path), ("last", callback.last_model_path)):
                if kept and Path(kept).is_file():
                    record.checkpoints[name] = Path(kept).resolve().relative_to(folder).as_posix()
    best = _best_checkpoint(assembly.trainer)
    if "best" in record.checkpoints and best is not None and best.best_model_score is not None:
        path = folder / record.checkpoints["best"]
        # mmap reads the few numbers that are asked for, not the weights.
        epoch = torch.load(path, map_location="cpu", weights_only=True, mmap=True)["epoch"]
        record.best = {
            "monitor": best.monitor,
            "value": float(best.best_model_score),
            "epoch": epoch + 1,
            "sha256": sha256(path),
        }


def run_rank(run_dir: Path, trusted_packages: Sequence[str]) -> int:
    """One rank of a distributed job whose run directory is there already.

    Args:
        run_dir: Holds `config.yaml` and a record that says `running`.
        trusted_packages: As the process that made the run directory has them.

    Returns:
        Exit code.
    """
    config = read_config(run_dir, trusted_packages)
    first = int(os.environ["RANK"]) == 0
    record = RunRecord.load(run_dir)
    try:
        with writing(run_dir, shared=True), quiet():
            assembly = assemble(config, prepare=False)
            if first:
                write_config(RunDirectory(run_dir), assembly.config)
                _execute(assembly, record, run_dir, raise_errors=False)
            else:
                with _signals(assembly):
                    _fit_and_test(assembly, record, run_dir)
    except StoppedBySignal:
        return 0  # as all others do: one that fails would have the launcher end the rest
    except AssayError as error:
        if first:
            record.status, record.reason, record.finished = "failed", error.message, _now()
            record.save(run_dir)
        return error.exit_code
    return 0 if not first or record.status in ("finished", "interrupted") else 1


def result_of(run_dir: Path) -> RunResult:
    """What a run directory says.

    Args:
        run_dir: The run directory.
    """
    record = RunRecord.load(run_dir)
    status, reason = record.status, record.reason
    if status == "running":  # its process died before it could say how it ended
        status, reason = "failed", "a process of the run died"
    overrides = tuple(record.overrides)
    return RunResult(
        run_dir, status, record.metrics, record.best, overrides, record.seconds, reason, record.signal
    )


def _scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def _parameters(module: torch.nn.Module) -> dict[str, int]:
    every = [p for p in module.parameters() if not isinstance(p, torch.nn.UninitializedParameter)]
    return {
        "parameters": sum(p.numel() for p in every),
        "trainable_parameters": sum(p.numel() for p in every if p.requires_grad),
    }


def _gpu_names() -> list[str]:
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _one_line(error: BaseException) -> str:
    if isinstance(error, AssayError):
        return str(error)
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
