"""Going on with a run: in its own directory, from its newest checkpoint, to the same end."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from assay.assemble.trainer_options import refuse_foreign_ranks, world_size
from assay.check.signature import check_signatures
from assay.check.values import check_trainer
from assay.checkpoint.checkpoint_file import find_newest_checkpoint, read_checkpoint
from assay.compose.recipe import settle_fused, settle_recipe
from assay.config.did_you_mean import did_you_mean
from assay.config.serialize import REPETITIONS, fingerprint, value_of
from assay.config.tree import walk
from assay.config.unread_keys import check_unread_on_resume
from assay.config.yaml_file import load_yaml
from assay.errors import AssayError, ConfigError, first_line
from assay.files.symlinks import check_links
from assay.loop.carried_state import Phase, Position
from assay.paths import CONF_DIR
from assay.quoting import pluralize
from assay.record.provenance import differences_between, segment_changes, segments
from assay.record.run_directory import remove_unfinished_files
from assay.record.run_lock import lock_run
from assay.record.run_record import RunRecord, now
from assay.run.execute import reattach_loggers, threads_of, verify_data_hash
from assay.run.saved_config import interpolations, read_config, restore_interpolations
from assay.run.train import begin_segment, prove, result_of, run_parts, write_run
from assay.targets.trust import KEY as TRUSTED
from assay.targets.trust import check_external_values, trust, typed_packages
from assay.terminal import Console

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hydra.core.override_parser.types import Override

    from assay.assemble.assembly import Assembly
    from assay.run.result import RunResult


_FIXED = (
    *("model", "data", "seed", "module", "param_groups", "finetune", "metrics", "recipe", "spec"),
    *("run_dir", "name", TRUSTED),
)
_FREE = ("data.num_workers", "data.pin_memory", "data.persistent_workers", "data.prefetch_factor")
_LENGTH_ARGUMENTS = (
    *("max_epochs", "max_steps", "max_time", "limit_train_batches", "accumulate_grad_batches"),
)
_OF_LENGTH = (
    "spec.total_steps",
    "spec.steps_per_epoch",
    *(f"trainer.{name}" for name in _LENGTH_ARGUMENTS),
)
_TRAINS_ON = ("trainer.max_epochs", "trainer.max_steps", "trainer.max_time", "trainer.min_epochs")
"""Keys, beside those of callbacks, with which even a finished run has something to do."""


@final
@dataclass(frozen=True)
class Change:
    """A job to go on with."""

    config: DictConfig
    changed: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    stop_holds: bool = True


def change(
    run_dir: Path, config: DictConfig, written: Mapping[str, str], overrides: Sequence[str]
) -> Change:
    """The job of a run, with what is to be different from here on."""
    config = restore_interpolations(config, written, references_only=True)
    with open_dict(config):
        config.run_dir = str(run_dir)
    before = _values(config)
    parsed = parse_overrides(overrides, "one run", "trainer.max_epochs=20")
    for override in parsed:
        _apply(config, override)
    settle_fused(config)
    settle_recipe(config)
    after = _values(config)
    with open_dict(config):
        config.pop("spec", None)  # the data tells it anew
    check_unread_on_resume(config, parsed)
    OmegaConf.set_struct(config, True)
    changed = {
        key: (before.get(key), after.get(key))
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    }
    dependent = _length_dependent_keys(config, changed)
    notes = _notes(changed, dependent)
    changed |= {key: (before.get(key), None) for key in dependent if key not in changed}
    return Change(config, changed, notes, stop_holds=_stop_holds(config, before, changed))


def parse_overrides(overrides: Sequence[str], what: str, example: str) -> list[Override]:
    """What was typed for a run that is there, without what is trusted."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise ConfigError(" ".join(str(error).split()), hint=example) from error
    for override in parsed:
        if override.is_sweep_override():
            raise ConfigError(f"{what} cannot have several values", key=override.key_or_group)
    return [override for override in parsed if override.key_or_group != TRUSTED]


def _apply(config: DictConfig, override: Override) -> None:
    key = override.key_or_group
    if (CONF_DIR / key).is_dir() and key == "device":
        choose_device(config, str(override.value()))
        return
    if (CONF_DIR / key).is_dir() or "@" in (override.get_key_element()):
        raise ConfigError(
            "an option cannot be changed in a run that has started",
            key=key,
            hint=f"{key}.KEY=VALUE",
        )
    root = key.partition(".")[0].partition("[")[0]
    # What is typed again, such as an address, may be said so.
    fixed = root in _FIXED and key not in _FREE and value_of(config, key) != override.value()
    if fixed or key.endswith("_target_"):
        raise ConfigError(
            "cannot be changed in a run that has started",
            key=key,
            hint="assay train with it, in a new run",
        )
    set_value(config, override, within="")


def set_value(config: DictConfig, override: Override, *, within: str) -> None:
    """Set, add or delete a key of a run's config."""
    key = override.key_or_group
    missing = object()
    try:
        absent = OmegaConf.select(config, key, default=missing) is missing
    except OmegaConfBaseException:  # it is there, and asks for the data, which was not read yet
        absent = False
    if absent and not override.is_add():
        node = config
        if within:
            node = config[within]
        keys = [entry.key for entry in walk(node, within)]
        raise ConfigError(f"the run has no such key{did_you_mean(key, keys, '; ')}", key=key)
    try:
        with open_dict(config):
            if override.is_delete():
                parent, _, name = key.rpartition(".")
                del OmegaConf.select(config, parent)[name]
            else:
                OmegaConf.update(config, key, override.value(), merge=False, force_add=True)
    except (OmegaConfBaseException, KeyError, TypeError) as error:
        raise ConfigError(first_line(error), key=key) from error


def choose_device(config: DictConfig, name: str) -> None:
    """Put an option of group `device` into a job."""
    path = CONF_DIR / "device" / f"{name}.yaml"
    if not path.is_file():
        names = sorted(path.stem for path in (CONF_DIR / "device").glob("*.yaml"))
        raise ConfigError(
            f"unknown option {name!r}", key="device", hint=f"one of {', '.join(names)}"
        )
    config.trainer = OmegaConf.merge(config.trainer, load_yaml(path))


def _values(config: DictConfig) -> dict[str, Any]:
    """Every plain value, resolved where it can be."""
    found: dict[str, Any] = {}
    for entry in walk(config):
        if not entry.is_container:
            try:
                value = entry.parent[entry.name]
            except OmegaConfBaseException:  # what asks for the data
                value = None
            if isinstance(value, DictConfig | ListConfig):  # what refers to another node
                found |= {
                    one.key: one.parent[one.name]
                    for one in walk(value, entry.key)
                    if not one.is_container
                }
            else:
                found[entry.key] = value
    return found


def _length_dependent_keys(config: DictConfig, changed: Mapping[str, Any]) -> dict[str, str]:
    """Keys that mean something else now that the run is longer, and why."""
    if not any(key.removeprefix("trainer.") in _LENGTH_ARGUMENTS for key in changed):
        return {}
    found = {
        key: text
        for key, text in interpolations(config).items()
        if any(f"${{{name}}}" in text for name in _OF_LENGTH)
    }
    for name, node in (config.get("callbacks") or {}).items():
        if node is not None and node.get("start_fraction") is not None:
            found[f"callbacks.{name}.start_fraction"] = "a share of trainer.max_epochs"
    return found


def _notes(changed: Mapping[str, tuple[Any, Any]], dependent: Mapping[str, str]) -> list[str]:
    notes = [
        f"{key}: {old} until here, {new} from here on" for key, (old, new) in changed.items()
    ]
    if dependent:
        keys = ", ".join(f"{key} ({text})" for key, text in dependent.items())
        notes.append(
            f"the length of the run decides {keys}: results differ from a run that had the new length from "
            "the start"
        )
    return notes


def _early_stopping(values: Mapping[str, Any]) -> set[str]:
    """The nodes that stop a run by a metric."""
    targets = {key: str(value) for key, value in values.items() if key.endswith("._target_")}
    return {
        key.removesuffix("._target_")
        for key, target in targets.items()
        if "EarlyStopping" in target
    }


def _stop_holds(
    config: DictConfig, before: Mapping[str, Any], changed: Mapping[str, Any]
) -> bool:
    """Whether a run that was told to stop stays stopped."""
    stopping = _early_stopping(before)
    if "trainer.max_time" in changed or any(
        ".".join(key.split(".")[:2]) in stopping for key in changed
    ):
        return False
    return bool(stopping & _early_stopping(_values(config))) or not any(
        key in _TRAINS_ON for key in changed
    )


def _check_stop(job: Change, extras: Mapping[str, Any]) -> list[str]:
    """Refuse to train a run longer that early stopping would end at once; a note where it is not."""
    if not extras.get("should_stop"):
        return []
    if not job.stop_holds:
        return [
            "the run was to stop (trainer.should_stop); it continues, as its settings have changed"
        ]
    longer = [key for key in job.changed if key in _TRAINS_ON]
    if longer:
        key = min(_early_stopping(_values(job.config)))
        raise ConfigError(
            "early stopping ended this run; with the same settings it would train nothing",
            key=longer[0],
            hint=f"{key}.patience=… beside it, or ~{key}",
        )
    return ["the run was to stop (trainer.should_stop): it finishes its epoch"]


def resume(
    run: str | Path,
    overrides: Sequence[str] = (),
    *,
    trusted_packages: Sequence[str] = (),
    said: frozenset[tuple[str, str]] = frozenset(),
    raise_errors: bool = True,
    gang: Any = None,
) -> RunResult:
    """Go on with a run that was interrupted, or train a finished one longer."""
    refuse_foreign_ranks()
    run_dir = Path(run)
    RunRecord.load(run_dir)  # no run directory, or a damaged one: told before anything is locked
    check_links(run_dir)
    with lock_run(run_dir):
        record, job = read_job(run_dir, overrides, trusted_packages, said)
        # Before the checkpoint is opened: a mistyped length would make that look damaged.
        check_signatures(job.config, sorted({key.partition(".")[0] for key in job.changed}))
        check_trainer(job.config)
        if record.status == "finished" and not _has_work(job):
            return replace(result_of(run_dir), reason="already finished; nothing to do")
        remove_unfinished_files(run_dir)
        entry = _resume_entry(run_dir, record, job, list(overrides))
        with threads_of(record):
            return _continue_run(job, record, entry, raise_errors=raise_errors, gang=gang)


def read_job(
    run_dir: Path,
    overrides: Sequence[str],
    trusted_packages: Sequence[str],
    said: frozenset[tuple[str, str]],
) -> tuple[RunRecord, Change]:
    """Read a run's record, and the job that it goes on with."""
    record = RunRecord.load(run_dir)
    trusted = (*trusted_packages, *typed_packages(overrides))
    config = read_config(run_dir, trusted, must_be_whole=True)
    job = change(run_dir, config, record.interpolations, overrides)
    check_external_values(job.config, replace(trust(overrides), said=said))
    return record, job


def _continue_run(
    job: Change, record: RunRecord, entry: dict[str, Any], *, raise_errors: bool, gang: Any
) -> RunResult:
    here, patch = begin_segment()
    last = segments(record)[-1]
    changed = differences_between(last, here)
    entry["notes"] += [f"not as before: {one}" for one in changed]
    if changed:
        entry["notes"].append("results may differ from an uninterrupted run")
    entry |= segment_changes(here, last)
    console = Console(highlight=False, soft_wrap=True)
    for note in entry["notes"]:
        console.print(note, markup=False)
    # `code.patch` stays what the run began with.
    earlier = [record.patch_sha256, *(one.get("patch_sha256") for one in record.resumed)]
    patches = {f"code.{len(record.resumed) + 2}.patch": patch}
    if entry.get("patch_sha256") in earlier:
        patches = {}
    config = job.config
    record = _restart_record(record, entry)
    proof = prove(config, entry["overrides"])
    written = {
        key: text for key, text in record.interpolations.items() if key not in entry["changed"]
    }
    before = restore_interpolations(config, written)
    record.fingerprint = fingerprint(before)
    record.interpolations = interpolations(before)
    record.config_fingerprint = fingerprint(before, REPETITIONS)
    reattach_loggers(config, record)

    @contextmanager
    def opened(plain: Mapping[str, Any], assembly: Assembly | None) -> Iterator[RunRecord]:
        if assembly is not None:
            verify_data_hash(assembly, record)
        write_run(
            Path(config.run_dir),
            plain,
            record,
            patches,
            hint="free some space, then `assay resume` the run",
        )
        yield record

    return run_parts(config, proof, opened, raise_errors=raise_errors, gang=gang)


def _has_work(job: Change) -> bool:
    """Whether a finished run has anything to do; refuses changes that would change nothing."""
    if not job.changed:
        return False
    if not any(key in _TRAINS_ON or key.startswith("callbacks.") for key in job.changed):
        raise ConfigError(
            "the run has finished; this key has no effect",
            key=next(iter(job.changed)),
            hint="trainer.max_epochs=… trains on",
        )
    return True


def _resume_entry(
    run_dir: Path, record: RunRecord, job: Change, overrides: list[str]
) -> dict[str, Any]:
    """The entry of the record that says where the run goes on from."""
    newest = find_newest_checkpoint(run_dir, record.checkpoints.values())
    notes = [f"{path.name} cannot be used: it {reason}" for path, reason in newest.refused]
    if newest.midway:
        names = ", ".join(path.name for path in newest.midway)
        notes.append(f"the data can only be read from the start of an epoch; not used: {names}")
    if newest.path is None:
        notes.append("no checkpoint was saved yet: the run starts again from step 0")
    else:
        state = _loop_state(read_checkpoint(newest.path, mmap=True), newest.path)
        before = _check_position(state, job.config)
        notes += _check_stop(job, state["carried"])
        if before != world_size(job.config):
            number = pluralize(before, "process", "processes")
            notes.append(
                f"{number} until here, {world_size(job.config)} from here on: steps take the same samples, "
                "their sums are rounded differently, and what an epoch logs is of the steps from here on"
            )
        notes.append(f"resuming from step {newest.step}: {newest.path}")
    notes += job.notes
    checkpoint = ""
    if newest.path is not None:
        checkpoint = newest.path.name
    return {
        "at": now(),
        "from_step": newest.step,
        "checkpoint": checkpoint,
        "overrides": overrides,
        "changed": {key: list(values) for key, values in job.changed.items()},
        "stop": job.stop_holds,
        "notes": notes,
        "before": {
            "status": record.status,
            "finished": record.finished,
            "seconds": record.seconds,
        },
    }


def _loop_state(checkpoint: dict[str, Any], path: Path) -> dict[str, Any]:
    """What the loop saved in a checkpoint from which a run can go on."""
    state: dict[str, Any] = (checkpoint.get("loops") or {}).get("fit_loop", {}).get(
        "state_dict"
    ) or {}
    try:
        Position.of_state(state.get("position"))
    except AssayError as error:
        raise AssayError(f"{path}: {error.message}", hint=error.hint) from error
    return state


def _check_position(state: dict[str, Any], config: DictConfig) -> int:
    """Refuse to go on where that is not possible; how many processes the run had."""
    position = Position.of_state(state["position"])
    processes = state["carried"]["processes"]
    now = world_size(config)
    before = len(processes)
    half_done = any("gradients" in one for one in processes)
    if before != now and (half_done or value_of(config, "data.global_batch_size") is None):
        raise ConfigError(
            f"the run has {pluralize(before, 'process', 'processes')}, but {now} are asked for",
            key="trainer.devices",
            hint=f"trainer.devices={before}; with data.global_batch_size any number takes the same samples",
        )
    needed = position.epoch + (position.phase is not Phase.EPOCH_START)
    most = config.trainer.get("max_epochs")
    if most is not None and 0 <= most < needed:
        raise ConfigError(
            f"expected at least {needed}, the epoch that the run has reached, got {most}",
            key="trainer.max_epochs",
            hint=f"trainer.max_epochs={needed}, or more",
        )
    return before


def _restart_record(record: RunRecord, entry: dict[str, Any]) -> RunRecord:
    """A record that says `running`, and knows no results any more."""
    overrides = entry["overrides"]
    again = {one.partition("=")[0] for one in overrides}
    typed = [*(one for one in record.overrides if one.partition("=")[0] not in again), *overrides]
    return msgspec.structs.replace(
        record,
        status="running",
        reason="",
        cause="",
        signal="",
        finished=None,
        overrides=typed,
        metrics={},
        matrices={},
        warnings=[],
        baseline={},
        threshold={},
        files={},
        weights_sha256="",
        resumed=[*record.resumed, entry],
    )
