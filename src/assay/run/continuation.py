"""What a run that goes on takes over from before: its checkpoint, its data, its place in other logs."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from omegaconf import open_dict

from assay.errors import AssayError
from assay.logger.run_csv import RunCSV
from assay.loop.carried_state import ChangedArguments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import lightning as L
    from omegaconf import DictConfig

    from assay.build.assembly import Assembly
    from assay.record.run_record import RunRecord

_IDS: Final[dict[str, dict[str, str | None]]] = {
    "MLFlowLogger": {"run_id": None},
    "WandbLogger": {"id": None, "resume": "allow"},
}
"""Arguments by which a logger goes on with a run it knows; None stands for the id."""
_MOST_THREADS: Final = 1024
_ID: Final = re.compile(r"[\w-]{1,128}", re.ASCII)


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
    changed_arguments = ChangedArguments(arguments, new_schedule=schedule, stop=last["stop"])
    assembly.trainer.fit_loop.changed = changed_arguments  # type: ignore[attr-defined]  # ours
    return run_dir / "checkpoints" / str(last["checkpoint"])


def verify_data_hash(assembly: Assembly, record: RunRecord) -> str:
    """Digest of the data, which must be the one that the run began with, where that is known."""
    digest = getattr(assembly.datamodule, "digest", None)
    found: str = digest() if digest is not None else ""
    if record.data_sha256 not in ("", found):
        raise AssayError(
            "the data is not what the run began with: its SHA-256 is another one",
            hint="bring the data back, or train anew",
        )
    return found


def restore_micro_batch(trainer: L.Trainer, record: RunRecord, run_dir: Path) -> None:
    """Take steps in the pieces that the run took them in, and note what changes at once."""
    micro_batch = getattr(getattr(trainer.fit_loop, "epoch_loop", None), "micro_batch", None)
    if micro_batch is None:
        return
    known = {int(batch): size for batch, size in record.micro_batch.items() if batch.isdecimal() and size > 0}

    def note() -> None:
        record.micro_batch = {str(batch): size for batch, size in sorted(micro_batch.sizes.items())}
        record.save(run_dir)  # now: a run that is killed says nothing later

    micro_batch.sizes, micro_batch.on_change = known, note


def logger_ids(trainer: L.Trainer) -> dict[str, str]:
    """Under which id other loggers know the run, by their class."""
    known = (logger for logger in trainer.loggers if type(logger).__name__ in _IDS)
    return {type(logger).__name__: str(logger.version) for logger in known}


def reattach_loggers(config: DictConfig, record: RunRecord) -> None:
    """Have other loggers go on with what they have of the run."""
    for node in (config.get("logger") or {}).values():
        kind = str(node.get("_target_")).rpartition(".")[2]
        with open_dict(config):
            if kind in _IDS and _ID.fullmatch(record.loggers.get(kind, "")):
                for name, value in _IDS[kind].items():
                    node[name] = record.loggers[kind] if value is None else value
            elif kind == "TensorBoardLogger":  # its files only grow; what comes later is hidden
                node.purge_step = record.resumed[-1]["from_step"] + 1


@contextmanager
def threads_of(record: RunRecord) -> Iterator[None]:
    """Compute with as many threads as the run began with: sums depend on how they are divided."""
    before, then = torch.get_num_threads(), record.machine.get("threads")
    if isinstance(then, int) and 0 < then <= _MOST_THREADS:
        torch.set_num_threads(then)
    try:
        yield
    finally:
        torch.set_num_threads(before)
