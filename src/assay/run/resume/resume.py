"""Going on with a run: in its own directory, from its newest checkpoint, to the same end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from assay.build.trainer.device import gpu_names
from assay.build.trainer.num_processes import world_size
from assay.checkpoint.checkpoint_file import read
from assay.checkpoint.select_checkpoint import newest_valid
from assay.errors import AssayError, ConfigError
from assay.files.checksum import damage_of
from assay.files.symlinks import check_links
from assay.loop.position import Phase, Position
from assay.quoting import counted
from assay.record.provenance.provenance import refuse_uncommitted
from assay.record.provenance.segment import code_changes, machine_changes, segment_here, segments, shortened
from assay.record.run_directory import RunDirectory
from assay.record.run_lock import writing
from assay.record.run_record import RunRecord, now
from assay.run.continuation import threads_of
from assay.run.resume.resume_overrides import Change, change
from assay.run.saved_config import read_config
from assay.run.train import go_on, result_of
from assay.targets.external_values import check_outside
from assay.targets.trust import trust, typed_packages
from assay.terminal import Console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omegaconf import DictConfig

    from assay.run.result import RunResult

_LENGTH = ("trainer.max_epochs", "trainer.max_steps", "trainer.max_time", "trainer.min_epochs")


def resume(
    run: str | Path,
    overrides: Sequence[str] = (),
    *,
    trusted_packages: Sequence[str] = (),
    said: frozenset[tuple[str, str]] = frozenset(),
    raise_errors: bool = True,
) -> RunResult:
    """Go on with a run that was interrupted, or train a finished one longer.

    It goes on from its newest valid checkpoint and ends as if it had never been interrupted: the same
    weights, optimizer and scheduler, the same rows of metrics.csv, bit for bit. A run that has no checkpoint
    yet begins anew in its directory.

    Args:
        run: Run directory.
        overrides: What is to be different from here on, such as `trainer.max_epochs=20`; and
            `trusted_packages=[…]`, since what a run itself trusts does not count.
        trusted_packages: What the user trusts besides.
        said: Addresses and places to write to that were allowed before; see
            `assay.targets.external_values.said_in`.
        raise_errors: As for `assay.train`.

    Returns:
        The scores; what the directory says where there is nothing to add.

    Raises:
        AssayError: The run is still being written, cannot be read or cannot go on with these overrides.
    """
    run_dir = Path(run)
    RunRecord.load(run_dir)  # no run directory, or a damaged one: told before anything is locked
    check_links(run_dir)
    with writing(run_dir):
        record = RunRecord.load(run_dir)
        trusted = (*trusted_packages, *typed_packages(overrides))
        config = read_config(run_dir, trusted, must_be_whole=True)
        job = change(run_dir, config, record.interpolations, overrides)
        check_outside(job.config, replace(trust(overrides), said=said))
        if record.status == "finished" and not _adds(job):
            return replace(result_of(run_dir), reason="it is finished; there is nothing to add")
        RunDirectory(run_dir).remove_unfinished()
        entry = _start(run_dir, record, job, list(overrides))
        with threads_of(record):
            return _go_on(job, record, entry, raise_errors=raise_errors)


def _go_on(job: Change, record: RunRecord, entry: dict[str, Any], *, raise_errors: bool) -> RunResult:
    now, patch = segment_here(gpu_names(), torch.get_num_threads())
    if job.config.get("enforce_clean_git"):
        refuse_uncommitted(Path.cwd(), now["git"], patch)
    before = segments(record)[-1]
    changed = [*code_changes(before, now), *machine_changes(before, now)]
    entry["notes"] += [f"not as before: {one}" for one in changed]
    if changed:
        entry["notes"].append("what comes out is perhaps not what the run would have come to")
    entry |= shortened(now, before)
    console = Console(highlight=False, soft_wrap=True)
    for note in entry["notes"]:
        console.print(note, markup=False)
    again = _begun_again(record, entry, entry["overrides"])
    return go_on(job.config, again, patch=patch, raise_errors=raise_errors)


def _adds(job: Change) -> bool:
    """Whether a finished run has anything to do; refuses changes that would change nothing."""
    if not job.changed:
        return False
    if not any(key in _LENGTH or key.startswith("callbacks.") for key in job.changed):
        raise ConfigError(
            "the run is finished: this would change nothing any more",
            key=next(iter(job.changed)),
            hint="trainer.max_epochs=… trains on",
        )
    return True


def _start(run_dir: Path, record: RunRecord, job: Change, overrides: list[str]) -> dict[str, Any]:
    """The entry of the record that says where the run goes on from."""
    newest = newest_valid(run_dir, record.checkpoints.values())
    notes = [f"{path.name} cannot be used: it {reason}" for path, reason in newest.refused]
    if newest.midway:
        names = ", ".join(path.name for path in newest.midway)
        notes.append(f"the data can only be read from the start of an epoch; not used: {names}")
    if newest.path is None:
        notes.append("no checkpoint was saved yet: the run begins anew, from step 0")
    else:
        checkpoint = read(newest.path, newest.path, mmap=True)
        try:
            _check_point(checkpoint, newest.path, job.config)
            notes += _lost_best(checkpoint, newest.path, followed=newest.followed)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise AssayError(
                f"{newest.path} is not as this run would have written it: {type(error).__name__}: {error}",
                hint="restore it from a copy, or remove it to go on from another one",
            ) from error
        notes.append(f"going on from step {newest.step}: {newest.path}")
    notes += job.notes
    return {
        "at": now(),
        "from_step": newest.step,
        "checkpoint": newest.path.name if newest.path is not None else "",
        "overrides": overrides,
        "changed": {key: list(values) for key, values in job.changed.items()},
        "stop": job.stop_holds,
        "notes": notes,
        "before": {"status": record.status, "finished": record.finished, "seconds": record.seconds},
    }


def _check_point(checkpoint: dict[str, Any], path: Path, config: DictConfig) -> None:
    state = (checkpoint.get("loops") or {}).get("fit_loop", {}).get("state_dict") or {}
    trainer = str(config.trainer.get("_target_"))
    if "resume_point" in checkpoint and "position" not in state:
        raise AssayError(
            f"{path} was saved by an earlier version of assay, in whose form no run can go on any more",
            hint="assay eval, predict and export take it; go on with the version that saved it",
        )
    if "position" not in state and not trainer.startswith("lightning."):
        raise ConfigError(
            f"{trainer} has loops of its own, with which no run can go on from {path}",
            key="trainer._target_",
            hint="assay train with the same overrides, in another directory; assay eval takes what is saved",
        )
    if not state.get("position"):
        raise AssayError(
            f"{path} was saved in the middle of a step, or holds weights alone: no run can go on from it",
            hint=f"remove it, and {path.name}.sha256, to go on from another one",
        )
    position = Position.of_state(state["position"])
    before, now = len(state["carried"]["processes"]), world_size(config)
    if before != now:
        raise ConfigError(
            f"the run has {counted(before, 'process', 'processes')}, and this asks for {now}",
            key="trainer.devices",
            hint=f"trainer.devices={before}",
        )
    needed = position.epoch + (position.phase is not Phase.EPOCH_START)
    most = config.trainer.get("max_epochs")
    if most is not None and 0 <= most < needed:
        raise ConfigError(
            f"{most} was given, and the run is already in epoch {needed}",
            key="trainer.max_epochs",
            hint=f"trainer.max_epochs={needed}, or more",
        )


def _lost_best(checkpoint: dict[str, Any], newest: Path, *, followed: bool) -> list[str]:
    """What is lost where the best checkpoint that a run knows of cannot be used."""
    notes = []
    for state in checkpoint["callbacks"].values():
        if not isinstance(state, dict) or not state.get("monitor") or not state.get("best_model_path"):
            continue
        path, home = Path(state["best_model_path"]), Path(str(state.get("dirpath")))
        if not path.is_relative_to(home) or home.name != newest.parent.name:
            continue  # the user keeps it elsewhere
        here = newest.parent / path.relative_to(home)  # the run may have been moved
        # A better one may have been saved and this one removed, right before the process died.
        if (reason := damage_of(here)) and not (followed and not here.exists()):
            score = f"{state['monitor']}={float(state['best_model_score']):.6g}"
            notes.append(
                f"the best checkpoint so far is lost: {here.name} ({score}) {reason}. Only a better one "
                "takes its place; without one the last weights are tested, and none is called best"
            )
    return notes


def _begun_again(record: RunRecord, entry: dict[str, Any], overrides: Sequence[str]) -> RunRecord:
    """A record that says `running`, and knows no results any more."""
    again = {one.partition("=")[0] for one in overrides}
    typed = [*(one for one in record.overrides if one.partition("=")[0] not in again), *overrides]
    return replace(
        record,
        status="running",
        reason="",
        cause="",
        signal="",
        finished=None,
        overrides=typed,
        metrics={},
        matrices={},
        files={},
        weights_sha256="",
        resumed=[*record.resumed, entry],
    )
