"""One run, from its objects to a finished record: train, test, and say how it ended."""

from __future__ import annotations

import difflib
import logging
import math
import os
import re
import shlex
import sys
import time
import traceback
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint, WeightAveraging
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden
from omegaconf import open_dict

from assay.assemble.assembly import notes_on_hyper_parameters, notes_on_parts
from assay.assemble.node import score_directions, score_shares
from assay.assemble.trainer import notes_on_gpu
from assay.assemble.trainer_options import is_sharded
from assay.checkpoint.checkpoint_file import CheckpointFile, weights_sha256
from assay.config.serialize import MOST_THREADS
from assay.data.encoder_file import write_encoder
from assay.errors import AssayError, ConfigError, NonFiniteError, Pruned
from assay.files.checksum import describe_damage, sha256
from assay.files.symlinks import RESULTS
from assay.logger.run_csv import RunCSV
from assay.loop.carried_state import ChangedArguments
from assay.loop.fit_loop import FitLoop
from assay.loop.stop_on_signal import StopOnSignal, StoppedBySignal
from assay.module import Module
from assay.process import Stopped
from assay.quoting import pluralize
from assay.record.provenance import idle_cores, usable_cores
from assay.record.run_directory import LOG, hash_files, log_file
from assay.record.run_record import RunRecord, now, reason_of
from assay.record.secrets import redact_tree
from assay.rooms import entries
from assay.run.result import print_and_log, print_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import lightning as L
    from lightning.pytorch.callbacks import Callback
    from omegaconf import DictConfig
    from torchmetrics import MetricCollection

    from assay.assemble.assembly import Assembly
    from assay.check.report import Proof

log = logging.getLogger("assay")
_LACKS = "could not complete the run record"


def end_wandb(record: RunRecord) -> None:
    """End the Weights & Biases run that this run has begun; what is trained next would go into it."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None and wandb.run.id in record.loggers.values():
        wandb.finish(exit_code=int(record.status != "finished"))


def execute(
    assembly: Assembly,
    record: RunRecord,
    run_dir: Path,
    *,
    raise_errors: bool,
    warnings: Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
    find_cause: Callable[[Exception], Exception] = lambda error: error,
) -> None:
    """Train, test, and say in the record how it ended, whatever happens."""
    start = time.perf_counter()
    seconds_before = record.seconds
    known_before = record.checkpoints
    with log_file(run_dir / LOG):
        try:
            record.model = _parameters(assembly.module)
            record.data_sha256 = verify_data_hash(assembly, record)
            for name in RESULTS:  # what an earlier end has kept is not what it comes to now
                (run_dir / name).unlink(missing_ok=True)
            record.directions = _directions(assembly)
            record.shares = score_shares(_metrics(assembly.module))
            write_encoder(run_dir, getattr(assembly.datamodule, "encoder", None))
            log.info("run %s: %s", record.run_id, " ".join(record.overrides) or "no overrides")
            if callbacks:
                names = ", ".join(type(one).__name__ for one in callbacks)
                log.info("callbacks given as objects, which no config names: %s", names)
            for segment in record.resumed[-1:]:
                for note in segment["notes"]:
                    log.warning("%s", note)
            for warning in warnings:
                log.warning("%s", warning)
            record.notes = [*warnings, *_notes(assembly)]
            print_start(assembly, record, record.notes[len(warnings) :])
            with stop_on_signals(assembly):
                fit_and_test(assembly, record, run_dir)
            record.status = "finished"
        except StoppedBySignal as stop:
            record.interrupted_by(stop.name)
        except (KeyboardInterrupt, SystemExit) as stop:
            note_exit(stop, record)
        except Pruned as end:
            record.status = "pruned"
            record.reason = str(end)
            record.metrics.update(_scalars(assembly.trainer.callback_metrics))
        except Exception as error:
            cause = find_cause(error)
            record.failed_by(cause)
            log.error("%s", "".join(traceback.format_exception(cause)))
            if raise_errors:
                raise
        finally:
            seconds = time.perf_counter() - start
            record.seconds = round(seconds_before + seconds, 3)
            began = [record.started, *(entry["at"] for entry in record.resumed)]
            record.finished = max(now(), *began)  # a clock may have been put back
            if record.checkpoints is known_before:  # training did not come to its end
                _try(record, _LACKS, _note_checkpoints, assembly, record, run_dir)
            _note_lost_rows(assembly.trainer, record)
            _try(record, _LACKS, end_wandb, record)
            log.info("%s after %.1f s %s", record.status, seconds, record.reason)
            record.files = _try(record, _LACKS, hash_files, run_dir) or {}
            _save(record, run_dir)


@contextmanager
def _explain_monitors(assembly: Assembly) -> Iterator[None]:
    """Turn Lightning's error about a monitored metric that the module has not logged into what to type."""
    try:
        yield
    except Exception as error:
        logged = sorted(assembly.trainer.callback_metrics)
        for name, node in assembly.config.callbacks.items():
            monitor = str((node or {}).get("monitor"))
            if re.search(
                f"(monitor='|metric `){re.escape(monitor)}['`].*(not find|not available)",
                str(error),
            ):
                key = f"callbacks.{name}.monitor"
                closest = difflib.get_close_matches(monitor, [*logged, "METRIC"], n=1, cutoff=0)[
                    0
                ]
                message = f"the module has not logged {monitor}; it logged {', '.join(logged)}"
                raise ConfigError(message, key=key, hint=f"{key}={closest}") from error
        raise


def _note_lost_rows(trainer: L.Trainer, record: RunRecord) -> None:
    """A run that has lost rows of metrics.csv says so wherever it is said how it ended."""
    lost = [
        logger.damage
        for logger in trainer.loggers
        if isinstance(logger, RunCSV) and logger.damage
    ]
    if lost:
        record.resumed[-1]["lost"] = lost
    if record.status == "finished":
        record.reason = "; ".join(
            one for entry in record.resumed for one in entry.get("lost", ())
        )


def note_exit(stop: KeyboardInterrupt | SystemExit, record: RunRecord) -> None:
    """Say in a record that a run was stopped, or what has ended its process."""
    # Lightning turns Ctrl-C into SystemExit once it has shut its loops down, rich a closed output.
    if isinstance(stop, KeyboardInterrupt) or isinstance(stop.__context__, KeyboardInterrupt):
        name = "SIGINT"
        if isinstance(stop, Stopped):
            name = stop.name
        record.interrupted_by(name)
    elif isinstance(stop.__context__, BrokenPipeError):
        record.status = "interrupted"
        record.reason = "its output was closed"
    else:
        record.failed_by(stop)
        log.error("%s", "".join(traceback.format_exception(stop)))


def _try(record: RunRecord, message: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; a failure is a note of the run, which has been trained all the same."""
    try:
        return function(*arguments)
    except Exception as error:
        log.warning("%s", message, exc_info=error)
        _note(record, f"{message}: {reason_of(error)}")
        return None


def _note(record: RunRecord, note: str) -> None:
    record.notes.append(note)
    print_and_log([("note", note)])


def _save(record: RunRecord, run_dir: Path) -> None:
    try:
        record.save(run_dir)
    except OSError as error:
        if record.reason:
            ended = f"{record.status}: {record.reason}"
        else:
            ended = record.status
        raise AssayError(
            f"{run_dir / 'record.json'} cannot be written: {error.strerror}. The run has {ended}",
            hint=f"free some space, then `assay resume {shlex.quote(str(run_dir))}`",
        ) from error


def fit_and_test(assembly: Assembly, record: RunRecord, run_dir: Path) -> None:
    """Train, then test the best checkpoint."""
    trainer = assembly.trainer
    module = assembly.module
    datamodule = assembly.datamodule
    for logger in trainer.loggers:
        if type(logger).__name__ not in record.loggers:  # MLflow refuses what is not as it was
            logger.log_hyperparams(redact_tree(assembly.plain))
    known = (logger for logger in trainer.loggers if type(logger).__name__ in _IDS)
    record.loggers = {type(logger).__name__: str(logger.version) for logger in known}
    if record.loggers and trainer.is_global_zero:
        record.save(run_dir)  # now, for a run that is killed says nothing later
    checkpoint = configure_resume(assembly, record, run_dir)
    restore_micro_batch(trainer, record, run_dir)
    with _explain_monitors(assembly):
        trainer.fit(module, datamodule=datamodule, ckpt_path=checkpoint, weights_only=True)
    if trainer.state.status == "interrupted":
        raise KeyboardInterrupt
    record.metrics.update(_scalars(trainer.callback_metrics))
    loss = record.metrics.get("train/loss", 0.0)
    if not math.isfinite(loss):
        raise NonFiniteError(
            f"the training loss became {loss}",
            hint="lower optimizer.lr, set trainer.gradient_clip_val=1.0, or look with debug=anomaly",
        )
    # Noted now, for the test puts the callbacks back to where they were at the best checkpoint.
    if trainer.is_global_zero:
        _note_checkpoints(assembly, record, run_dir)
    if is_sharded(assembly.config.trainer) or (
        trainer.is_global_zero and assembly.holds_whole_model
    ):
        record.weights_sha256 = weights_sha256(module.state_dict())
    path = _checkpoint_to_test(trainer, record)
    spec = getattr(datamodule, "spec", None)
    can_test = is_overridden("test_step", module) and is_overridden("test_dataloader", datamodule)
    tests = can_test and trainer.limit_test_batches and (spec is None or spec.num_test)
    averages = any(isinstance(callback, WeightAveraging) for callback in assembly.callbacks)
    if path and (averages or (not tests and isinstance(trainer.strategy, SingleDeviceStrategy))):
        # Lightning 2.6 would test the weights from before the averaging, which lie in the checkpoint, too.
        module.load_state_dict(CheckpointFile().load_checkpoint(path)["state_dict"])
        path = None
    if not can_test:
        lacks = "the module has no test_step, or the datamodule no test_dataloader"
        _note(record, f"nothing was tested: {lacks}")
    elif tests:
        _test(assembly, record, run_dir, path)
    record.matrices = dict(getattr(module, "matrices", {}))


def _test(assembly: Assembly, record: RunRecord, run_dir: Path, checkpoint: str | None) -> None:
    """Test, and let rooms keep and look at the predictions."""
    trainer = assembly.trainer
    with ExitStack() as stack:
        keepers = [
            (room.write, stack.enter_context(room.collect_predictions(assembly)))
            for room in entries("predictions")
        ]
        trainer.test(
            assembly.module,
            datamodule=assembly.datamodule,
            ckpt_path=checkpoint,
            verbose=False,
            weights_only=True,
        )
    record.metrics.update(_scalars(trainer.callback_metrics))
    if not trainer.is_global_zero:
        return
    predictions = None
    for write, keep in keepers:
        not_kept = "could not save the predictions"
        predictions = _try(record, not_kept, write, assembly, keep, run_dir)
    for add in entries("after_test"):
        message = f"could not {add.__name__.replace('_', ' ')}"
        _try(record, message, add, assembly, record, predictions)


def stop_on_signals(assembly: Assembly) -> AbstractContextManager[None]:
    """Stop after a step, with a checkpoint, when told to."""
    stops = (callback for callback in assembly.callbacks if isinstance(callback, StopOnSignal))
    return next((stop.watching() for stop in stops), nullcontext())


def _best_checkpoint(trainer: L.Trainer) -> ModelCheckpoint | None:
    kept = (
        callback
        for callback in trainer.checkpoint_callbacks
        if isinstance(callback, ModelCheckpoint)
    )
    return next((callback for callback in kept if callback.monitor is not None), None)


def _checkpoint_to_test(trainer: L.Trainer, record: RunRecord) -> str | None:
    """The best checkpoint; None where the weights of the last step are to be tested."""
    best = _best_checkpoint(trainer)
    path = ""
    if best is not None:
        path = best.best_model_path
    if not path:
        return None
    if reason := describe_damage(Path(path)):
        instead = "the weights of the last step are tested in its place"
        _note(record, f"{Path(path).name} {reason}; {instead}")
        return None
    return path


def _note_checkpoints(assembly: Assembly, record: RunRecord, run_dir: Path) -> None:
    """Name the checkpoints in the record, which stays as it is where the callbacks know of none."""
    found: dict[str, str] = {}
    folder = (run_dir / "checkpoints").resolve()
    for callback in assembly.trainer.checkpoint_callbacks:
        if isinstance(callback, StopOnSignal) and callback.received and callback.path.is_file():
            found["last"] = callback.path.name
        elif isinstance(callback, ModelCheckpoint):
            role = "best"
            if callback.monitor is None:
                role = "last"
            for name, kept in (
                (role, callback.best_model_path),
                ("last", callback.last_model_path),
            ):
                path = Path(kept).resolve()  # one given as an object may save elsewhere
                usable = kept and path.is_relative_to(folder) and path.is_file()
                if usable and not (name == "best" and describe_damage(path)):
                    found[name] = path.relative_to(folder).as_posix()
    if not found:
        return
    record.checkpoints = found
    record.best = {}
    best = _best_checkpoint(assembly.trainer)
    if "best" in found and best is not None and best.best_model_score is not None:
        path = folder / found["best"]
        # mmap reads the few numbers that are asked for, not the weights.
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        # What is compared is what is tested, not what the last epoch has made of it.
        if "loops" in saved:  # which `save_weights_only` leaves out
            record.metrics.update(saved["loops"]["fit_loop"]["state_dict"].get("scores", {}))
        record.best = {
            "monitor": best.monitor,
            "value": float(best.best_model_score),
            "epoch": saved["epoch"] + 1,
            "sha256": sha256(path),
        }


def _notes(assembly: Assembly) -> list[str]:
    data = assembly.datamodule
    module = assembly.module
    config = assembly.config
    if isinstance(module, Module):
        of_parts = notes_on_parts(config, module.model, module.finetune)
    else:
        of_parts = []
    notes = [*getattr(data, "notes", ()), *of_parts]
    notes += notes_on_hyper_parameters(module, data)
    notes += notes_on_gpu(config, module, assembly.trainer.strategy.root_device)
    if not isinstance(assembly.trainer.fit_loop, FitLoop):
        kind = type(assembly.trainer).__name__
        notes.append(
            f"{kind} has custom loops: a run that is stopped after its first checkpoint cannot be resumed"
        )
    return notes


def _scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def _directions(assembly: Assembly) -> dict[str, str]:
    """Which way each score is better: as its metric says, else as the best checkpoint is kept by it."""
    best = _best_checkpoint(assembly.trainer)
    if best is not None:
        kept_by = {str(best.monitor): str(best.mode)}
    else:
        kept_by = {}
    metrics = _metrics(assembly.module)
    if metrics:
        known = score_directions(assembly.config, metrics)
    else:
        known = {}
    return {**kept_by, **known}


def _metrics(module: L.LightningModule) -> dict[str, MetricCollection]:
    if not isinstance(module, Module):
        return {}
    return {"train": module.train_tracker.metrics, "eval": module.val_tracker.metrics}


def _parameters(module: torch.nn.Module) -> dict[str, int]:
    every = [p for p in module.parameters() if not isinstance(p, torch.nn.UninitializedParameter)]
    return {
        "parameters": sum(p.numel() for p in every),
        "trainable_parameters": sum(p.numel() for p in every if p.requires_grad),
    }


# -- what a run that goes on takes over from before ---------------------------------------------------------

_IDS: dict[str, dict[str, str | None]] = {
    "MLFlowLogger": {"run_id": None},
    "WandbLogger": {"id": None, "resume": "allow"},
}
"""Arguments by which a logger goes on with a run it knows; None stands for the id."""
_ID = re.compile(r"[\w-]{1,128}", re.ASCII)


def configure_resume(assembly: Assembly, record: RunRecord, run_dir: Path) -> Path | None:
    """Have the trainer go on from where the last entry of `resumed` says."""
    if not record.resumed:
        return None
    last = record.resumed[-1]
    if not last["checkpoint"]:
        for logger in assembly.trainer.loggers:
            if isinstance(logger, RunCSV):
                logger.rewind(None)
        return None
    changed: dict[str, Any] = last["changed"]
    arguments = {
        key.removeprefix("optimizer."): (old, new)
        for key, (old, new) in changed.items()
        if key.startswith("optimizer.")
    }
    schedule = any(key.startswith("scheduler.") for key in changed)
    patience = [
        (old, new)
        for key, (old, new) in changed.items()
        if re.fullmatch(r"callbacks\.\w+\.patience", key) and isinstance(new, int)
    ]
    changed_arguments = ChangedArguments(arguments, schedule, last["stop"], patience)
    assembly.trainer.fit_loop.changed = changed_arguments  # type: ignore[attr-defined]  # ours
    return run_dir / "checkpoints" / str(last["checkpoint"])


def verify_data_hash(assembly: Assembly, record: RunRecord) -> str:
    """Digest of the data, which must be the one that the run began with, where that is known."""
    digest = getattr(assembly.datamodule, "digest", None)
    found: str = ""
    if digest is not None:
        found = digest()
    if record.data_sha256 not in ("", found):
        message = "the data has changed since the run began: its SHA-256 differs"
        raise AssayError(message, hint="restore the data, or train a new run")
    return found


def restore_micro_batch(trainer: L.Trainer, record: RunRecord, run_dir: Path) -> None:
    """Take steps in the pieces that the run took them in, and note what changes at once."""
    micro_batch = getattr(getattr(trainer.fit_loop, "epoch_loop", None), "micro_batch", None)
    if micro_batch is None:
        return
    known = {
        int(batch): size
        for batch, size in record.micro_batch.items()
        if batch.isdecimal() and size > 0
    }

    def note() -> None:
        record.micro_batch = {
            str(batch): size for batch, size in sorted(micro_batch.sizes.items())
        }
        record.save(run_dir)  # now: a run that is killed says nothing later

    micro_batch.sizes = known
    micro_batch.on_change = note


def reattach_loggers(config: DictConfig, record: RunRecord) -> None:
    """Have other loggers go on with what they have of the run."""
    for node in (config.get("logger") or {}).values():
        kind = str(node.get("_target_")).rpartition(".")[2]
        with open_dict(config):
            if kind in _IDS and _ID.fullmatch(record.loggers.get(kind, "")):
                for name, value in _IDS[kind].items():
                    if value is None:
                        node[name] = record.loggers[kind]
                    else:
                        node[name] = value
            elif kind == "TensorBoardLogger":  # its files only grow; what comes later is hidden
                node.purge_step = record.resumed[-1]["from_step"] + 1


def threads_of(record: RunRecord) -> AbstractContextManager[None]:
    """Compute with as many threads as the run began with: sums depend on how they are divided."""
    then = record.machine.get("threads")
    threads = None
    if isinstance(then, int) and 0 < then <= MOST_THREADS:
        threads = then
    return use_threads(threads)


_PER_THREAD = (100e6, 16 << 20)
"""Floating-point operations and bytes of a step that pay for one more thread.

Two threads save a fifth of a step of 330 million operations. Where others use the cores they take 30 times as
long as one, because each of some hundred operations waits until both run.
"""


def fit_threads(proof: Proof) -> int | None:
    """As many threads as a step of all processes has work for; None with a GPU, or where it is typed."""
    trainer = proof.trainer
    if trainer is None or {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & {*os.environ}:
        return None
    if trainer[0].strategy.root_device.type != "cpu":
        return None
    threads = min(torch.get_num_threads(), usable_cores())
    step = proof.report.step
    if step is None:
        return threads
    flops, size = _PER_THREAD
    processes = proof.report.devices // trainer[0].num_nodes
    each = max(1, int(step.flops / flops), step.memory.peak // size)
    return max(processes, min(each * processes, threads))


def choose_threads(proof: Proof) -> int | None:
    """As many as a step has work for, and no more than are idle where at most half of them are."""
    threads = fit_threads(proof)
    if threads is None or threads <= proof.report.devices:
        return threads
    idle = max(1, idle_cores())
    if 2 * idle > threads:
        return threads
    note = (
        f"most cores are busy: {pluralize(idle, 'thread')} instead of {threads}, which may change the last "
        f"digits; OMP_NUM_THREADS={threads} before the command takes all"
    )
    print_and_log([("note", note)])
    return idle


@contextmanager
def use_threads(number: int | None) -> Iterator[None]:
    """Compute with so many threads in this block; None for as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
