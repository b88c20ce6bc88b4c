"""Testing a run's weights again: on its own samples, or on others."""

from __future__ import annotations

import logging
import os
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import lightning as L
import msgspec
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from omegaconf import DictConfig, OmegaConf, open_dict

from assay.assemble.assembly import Assembly, add_outputs, add_spec, build_module, open_data
from assay.assemble.model import has_weights
from assay.assemble.node import build
from assay.assemble.trainer import check_device, silence_lightning
from assay.assemble.trainer_options import refuse_foreign_ranks
from assay.callbacks.seed_each_step import SeedEachStep
from assay.compose.compose import compose, job_config
from assay.config.serialize import value_of
from assay.config.unread_keys import OUR_DATA
from assay.data.core.data_module import DataModule
from assay.data.core.rendering import sample_names
from assay.data.core.spec import FittedPreprocessing, Spec
from assay.data.encoder_file import read_encoder
from assay.errors import AssayError, ConfigError, first_line
from assay.files.checksum import sha256
from assay.files.symlinks import check_links
from assay.loop.fit_loop import install
from assay.loop.lightning_internals import leave_signals
from assay.quoting import format_number
from assay.record.run_lock import lock_run
from assay.record.run_record import RunRecord, now, to_json_numbers
from assay.record.secrets import redact_tree
from assay.run.execute import threads_of
from assay.run.predictor import (
    checkpoint_path,
    explain_misfit,
    read_predictor,
    read_weights,
    source_info,
)
from assay.run.resume import choose_device, parse_overrides, set_value
from assay.run.saved_config import describe_ending, name_file_in_errors, read_config
from assay.targets.allowed_targets import check_targets
from assay.targets.trust import KEY as TRUSTED
from assay.targets.trust import check_addresses, trust, typed_packages
from assay.task.task_of import task_of
from assay_analysis import predictions_file
from assay_serve.kept_predictions import collect_predictions, predictions_of, warnings_of
from assay_serve.threshold import describe_scores, set_threshold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.task.predictions import StoredPredictions

_LOADING = (
    "eval_batch_size",
    "num_workers",
    "pin_memory",
    "persistent_workers",
    "prefetch_factor",
)


def change_data(config: DictConfig, overrides: Sequence[str], config_dir: Path | None) -> bool:
    """Put other data, or another device, into a run's config."""
    parsed = parse_overrides(overrides, "one evaluation", "data.source.path=FILE")
    given = {one.key_or_group: one for one in parsed}
    ours = OmegaConf.select(config, "data._target_") == OUR_DATA
    learned = source_info(config).learned
    for key in given:
        _check_key(key, learned, ours=ours)
    if (device := given.pop("device", None)) is not None:
        choose_device(config, str(device.value()))
    if "data" in given:
        _choose_source(config, list(overrides), config_dir, ours=ours)
        check_targets(config)
        return True
    for one in given.values():
        set_value(config, one, within="data")
    check_targets(config)
    _check_test_source(config, given)
    return any(key.partition(".")[2].partition(".")[0] not in _LOADING for key in given)


def _check_key(key: str, learned: Sequence[str], *, ours: bool) -> None:
    root, _, rest = key.partition(".")
    name = rest.partition(".")[0]
    fine = key in ("data", "device") or (
        root == "data"
        and (not ours or name == "source" or rest in _LOADING)
        and "_target_" not in key
    )
    if not fine or key.rpartition(".")[2] in learned:
        raise ConfigError(
            "an evaluation cannot change this key",
            key=key,
            hint="data=OPTION, data.source.KEY=VALUE or device=OPTION",
        )


def _choose_source(
    config: DictConfig,
    overrides: Sequence[str],
    config_dir: Path | None,
    *,
    ours: bool,
) -> None:
    """The source of another option, with all that the run did to its samples."""
    asked = [one for one in overrides if one.lstrip("+~").startswith(("data", TRUSTED))]
    chosen = job_config(compose(asked, config_dir)).data
    if not ours or OmegaConf.select(chosen, "_target_") != OUR_DATA:
        raise ConfigError(
            "another option cannot be chosen with a datamodule that is not assay's",
            key="data",
            hint="data.KEY=VALUE",
        )
    with open_dict(config):
        config.data.source = OmegaConf.create(OmegaConf.to_container(chosen.source, resolve=True))
        for name in _LOADING:
            if any(one.startswith(f"data.{name}=") for one in asked):
                config.data[name] = chosen[name]


def _check_test_source(config: DictConfig, given: dict[str, Any]) -> None:
    """Refuse other training samples where the test subset is a file of its own, which alone would be read."""
    for key in given:
        parent, _, name = key.rpartition(".")
        other = f"{parent}.test_{name}"
        if parent != "data.source" or other in given:
            continue
        value = OmegaConf.select(config, other)
        if value is not None:
            raise ConfigError(
                f"this would not be tested: the run's test subset is {other}={value}",
                key=key,
                hint=f"{other}=…, or {other}=null as well",
            )


log = logging.getLogger("assay")
FOLDER = "evaluations"
_NOT_NEEDED = ("augment", "scheduler", "param_groups", "callbacks", "logger")


@final
@dataclass(frozen=True)
class Evaluation:
    """What a run's weights came to when they were tested again; an entry of its record.

    Attributes:
        run_dir: Of the run; the record does not repeat it.
        at: UTC, ISO 8601.
        subset: What was tested; `all` where the data came undivided.
        checkpoint: File within `checkpoints/`.
        checkpoint_sha256: Its SHA-256.
        overrides: What was typed.
        data_sha256: Of the data's contents and division; empty where it cannot say.
        same_data: Whether this is the data that the run was trained and tested on.
        num_samples: How many were tested; 0 where a datamodule of somebody's own does not say.
        metrics: Scores, named after the subset, such as `test/accuracy`.
        notes: What the user should know, such as classes that the data lacks.
        threshold: Of two classes, the run's threshold, with its precision, recall and F1 on these samples;
            empty where the run has none. `metrics` are at 0.5.
        predictions: File in the run directory; empty where none were kept.
    """

    run_dir: Path
    at: str
    subset: str
    checkpoint: str
    checkpoint_sha256: str
    overrides: Sequence[str]
    data_sha256: str
    same_data: bool
    num_samples: int
    metrics: Mapping[str, float]
    notes: Sequence[str] = field(default_factory=list)
    threshold: Mapping[str, Any] = field(default_factory=dict)
    predictions: str = ""


def evaluate(
    run: str | Path,
    overrides: Sequence[str] = (),
    *,
    checkpoint: Literal["best", "last"] = "best",
    split: Literal["", "train", "val", "test"] = "",
    threshold: str | None = None,
    trusted_packages: Sequence[str] = (),
    config_dir: Path | None = None,
) -> Evaluation:
    """Test a run's weights on its own data or on other data, with all that it does to samples.

    Nothing is learned from the samples: classes, a table's columns and categories, normalisation and the unit
    of targets are the run's. The scores, with the date, become an entry of its record, and the predictions a
    file in it.

    Args:
        run: Run directory.
        overrides: Other data: `data=OPTION`, `data.source.KEY=VALUE`; another device: `device=cpu`;
            `trusted_packages=[…]`, since what a run itself trusts does not count.
        checkpoint: `best` or `last`; `last` is taken where a run kept no best one.
        split: Subset to test. Left out, it is the test subset of the run's data, or of data that comes with
            one; of other data it is all.
        threshold: Of two classes, see `assay_serve.threshold.set_threshold`; that of the run's own test
            becomes the run's.
        trusted_packages: What the user trusts besides.
        config_dir: The user's folder of config groups.

    Returns:
        The scores, and where they were kept.

    Raises:
        AssayError: There is no such run or checkpoint, another process is writing it, its data has changed,
            or the model does not take the samples.
    """
    refuse_foreign_ranks()
    run_dir = Path(run)
    record = RunRecord.load(run_dir)
    packages = (*trusted_packages, *typed_packages(overrides))
    config = read_config(run_dir, packages)
    path = checkpoint_path(run_dir, checkpoint)
    trained = read_trained(config, run_dir)
    ended = describe_ending(run_dir, path)
    other = change_data(config, overrides, config_dir)
    of_config = nullcontext() if other else name_file_in_errors(run_dir / "config.yaml")
    check_addresses(config, trust(overrides))
    check_links(run_dir)
    is_writable = os.access(run_dir, os.W_OK)
    notes = list[str]()
    if threshold is not None:
        predictor = read_predictor(run_dir, checkpoint, "cpu", packages)
        set_threshold(predictor, run_dir, threshold, packages)
        record.threshold = dict(predictor.about_threshold)
        notes += [note for note in predictor.notes if note not in ended]
    with (
        lock_run(run_dir) if is_writable else nullcontext(),
        silence_lightning(),
        threads_of(record),
        of_config,
    ):
        found, predictions = _test(
            config, record, run_dir, path, split, trained=trained, other=other
        )
        becomes_own = (
            threshold is not None
            and found.same_data
            and found.subset == "test"
            and path == checkpoint_path(run_dir, "best")
            and is_writable
        )
        notes = [*ended, *notes, *found.notes]
        if becomes_own:
            notes += ["assay predict, export and report use this threshold from now on"]
        if not is_writable:
            notes += [f"the scores are not kept: {run_dir} cannot be written"]
        found = replace(found, overrides=list(overrides), notes=notes)
        if is_writable:
            return _save_evaluation(found, predictions, becomes_own=becomes_own)
        return found


def _test(
    config: DictConfig,
    record: RunRecord,
    run_dir: Path,
    path: Path,
    split: str,
    *,
    trained: FittedPreprocessing | None,
    other: bool,
) -> tuple[Evaluation, StoredPredictions | None]:
    """Build what is needed of the run, and test it."""
    check_device(config.trainer)
    torch.set_float32_matmul_precision(config.trainer.get("matmul_precision") or "highest")
    with open_dict(config):
        # by the augmentation
        views = "spec" in config and task_of(config.spec.task).compares_views
        config.update({key: None for key in _NOT_NEEDED if not (views and key == "augment")})
        if has_weights(config):  # the checkpoint's take their place, and the file may be gone
            config.model.weights = None
        config.trainer.update(
            {"devices": 1, "num_nodes": 1, "strategy": "auto", "profiler": None}
        )
        if not config.trainer.get("limit_test_batches", 1.0):
            config.trainer.limit_test_batches = 1.0  # training left the test subset sealed
    data = read_data(config, trained, split, record.data_sha256)
    digest = ""
    if isinstance(data, DataModule):
        digest = data.digest()
    elif not other:
        digest = record.data_sha256
    same = not other
    if digest:
        same = digest == record.data_sha256
    if not same and not other:
        raise changed_data_error(run_dir)
    trainer = build(
        config,
        "trainer",
        callbacks=[SeedEachStep(config.seed)],
        logger=False,
        plugins=[LightningEnvironment()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=str(run_dir),
    )
    leave_signals(trainer)
    install(trainer)
    assembly = Assembly(build_module(config, trainer), data, trainer, config)
    with explain_misfit(path, run_dir):
        assembly.module.load_state_dict(read_weights(path))
    with collect_predictions(assembly) as keep:
        trainer.test(assembly.module, datamodule=data, verbose=False)
    subset = "test"
    may_overlap = False
    lacking = []
    num_samples = keep.num_seen
    if isinstance(data, DataModule):
        subset = data.tested
        may_overlap = subset in ("all", "train") or data.splits.stream is not None
        of_source = () if same else data.source.notes
        lacking = [*of_source, *data.splits.note_lacking(subset)]
        num_samples = num_samples or len(sample_names(data))
    metrics = {
        name.replace("test/", f"{subset}/", 1): float(value)
        for name, value in trainer.callback_metrics.items()
    }
    if not metrics:
        raise AssayError("nothing was tested: the module logs no scores in its test_step")
    notes = []
    if trained is not None:
        notes = list(trained.notes)
    notes += lacking
    if same and subset == "test" and path.name == record.checkpoints.get("best", path.name):
        notes += _score_differences(metrics, record.metrics)
    elif not same and may_overlap:
        notes.append("it is not known whether the run was trained on some of these samples")
    elif subset == "train":
        notes.append("these are the samples that the run was trained on, without augmentation")
    predictions = predictions_of(assembly, keep)
    found = Evaluation(
        run_dir=run_dir,
        at=now(),
        subset=subset,
        checkpoint=path.name,
        checkpoint_sha256=sha256(path),
        overrides=[],
        data_sha256=digest,
        same_data=same,
        num_samples=num_samples,
        metrics=metrics,
        notes=[*notes, *warnings_of(predictions and predictions.at(record.threshold))],
        threshold=describe_scores(record.threshold, predictions),
    )
    return found, predictions


def changed_data_error(run_dir: Path) -> AssayError:
    """The error for data of a run that is no longer what it was."""
    return AssayError(
        f"the data is not what {run_dir} was trained on: its SHA-256 differs, so its test "
        "subset may hold samples that were trained",
        hint="restore it; to test the present data, name it: data.source.KEY=VALUE",
    )


def read_trained(config: DictConfig, run_dir: Path) -> FittedPreprocessing | None:
    """What the run knows of its data; None of a datamodule of somebody's own."""
    spec: Any = OmegaConf.to_container(config.get("spec") or OmegaConf.create(), resolve=True)
    if "task" not in spec:
        return None
    must_be = source_info(config).has_encoder
    return FittedPreprocessing(
        msgspec.convert(spec, Spec), read_encoder(run_dir, must_be=must_be)
    )


def read_data(
    config: DictConfig,
    trained: FittedPreprocessing | None,
    split: str,
    digest: str,
) -> L.LightningDataModule:
    """The data of a config as its run prepares it."""
    # a few rows may look like another task; data.task counts before what the source finds
    if (
        trained
        and config.data.get("task") is None
        and value_of(config, "data.source.task") == "auto"
    ):
        config.data.source.task = trained.spec.task
    L.seed_everything(config.seed, workers=True, verbose=False)
    data: Any = build(config, "data")
    if not isinstance(data, DataModule):
        if split not in ("", "test"):
            raise ConfigError(
                f"--split {split} is not available with a custom datamodule", key="data"
            )
        data = open_data(config)
        add_spec(config, getattr(data, "spec", None))
        if "spec" in config:
            add_outputs(config)
        return data  # type: ignore[no-any-return]  # a LightningDataModule by its slot
    if trained is None:
        raise AssayError(
            "the run's config.yaml has no spec: the run ended before its data was read"
        )
    data.prepare_data()
    data.setup_for(trained, split, digest)
    if data.splits.task.compares_views and data.splits.targets(data.tested).ndim > 1:
        config.metrics.eval.metrics = {}
        trained.notes.append("without classes there is no score but the loss")
    return data


def _score_differences(metrics: Mapping[str, float], recorded: Mapping[str, float]) -> list[str]:
    """Scores of the same samples that are not those on record, as on another machine."""
    other = [
        f"{name} {format_number(value, 6)} here, {format_number(recorded[name], 6)} in the record"
        for name, value in metrics.items()
        if name in recorded and to_json_numbers(value) != to_json_numbers(recorded[name])
    ]
    if other:
        return [f"not as in the run: {'; '.join(other)}"]
    return []


def _save_evaluation(
    found: Evaluation, predictions: StoredPredictions | None, *, becomes_own: bool
) -> Evaluation:
    """Write the predictions, then the entry that names them."""
    stem = found.at.partition("+")[0].replace(":", "-")
    number = 1
    while (
        path := found.run_dir / FOLDER / f"{stem}-{number}" / predictions_file.FILE
    ).parent.exists():
        number += 1
    try:
        if predictions is not None:
            predictions_file.write(path, predictions)
            found = replace(found, predictions=path.relative_to(found.run_dir).as_posix())
        record = RunRecord.load(found.run_dir)
        entry = {key: value for key, value in asdict(found).items() if key != "run_dir"}
        if becomes_own:
            record.threshold = dict(found.threshold)
            record.warnings = warnings_of(predictions and predictions.at(record.threshold))
        record.evaluations = [*record.evaluations, to_json_numbers(redact_tree(entry))]
        record.save(found.run_dir)
    except OSError as error:
        path.unlink(missing_ok=True)
        for folder in (path.parent, path.parent.parent):
            with suppress(OSError):  # not there, or it holds another evaluation
                folder.rmdir()
        raise AssayError(f"{found.run_dir} cannot be written: {first_line(error)}") from error
    return found
