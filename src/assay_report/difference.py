"""What differs between two runs, config files, or lists of overrides."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.compose.compose import compose, job_config
from assay.compose.recipe import OF_SPEC, restore_auto
from assay.config.tree import walk
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError
from assay.record.run_record import FILE, RunRecord, no_run_error
from assay.rooms import name_source
from assay.terminal import Console, print_rows, shorten
from assay_analysis.run import flatten
from assay_explain.origin import to_yaml_line

if TYPE_CHECKING:
    from collections.abc import Mapping

_ABSENT = "not there"
_MATTERS = (
    "status",
    "seed",
    "data_sha256",
    "patch_sha256",
    "git",
    "machine",
    "packages",
    "model",
)
_RUN_DIR = "${run_dir}"


Rows = dict[str, tuple[str | None, str | None]]
"""By key what two sides have, as it is written in YAML; None for what is not there."""


@final
@dataclass(frozen=True)
class Difference:
    """What differs.

    Attributes:
        first: One of the two, as typed; empty for the default config.
        second: The other.
        config: By full key what each has, as it is written in YAML.
        record: Of two runs: code, packages, machine, data, seed.
        scores: Of two runs: last values of scalars.
    """

    first: str
    second: str
    config: Rows
    record: Rows
    scores: Rows


def read_side(name: str, config_dir: Path | None = None) -> tuple[DictConfig, RunRecord | None]:
    """Read a run directory or a config file, or compose overrides."""
    path = Path(name)
    if name.strip() and path.is_dir():
        if not (path / "config.yaml").is_file():
            raise no_run_error(path)
        record = None
        if (path / FILE).is_file():
            record = RunRecord.load(path)
        return load_mapping(path / "config.yaml"), record
    if name.strip() and path.is_file():
        return load_mapping(path), None
    try:
        overrides = shlex.split(name)
    except ValueError as error:
        raise AssayError(f"{name!r} cannot be read: {error}", hint="close every quote") from error
    if any("=" not in override and not override.startswith("~") for override in overrides):
        raise AssayError(
            f"{name!r} is neither a run directory, nor a YAML file, nor overrides",
            hint="assay diff outputs/A outputs/B, or assay diff '' 'optimizer=sgd optimizer.lr=0.1'",
        )
    with name_source(overrides, config_dir):
        return job_config(compose(overrides, config_dir)), None


def config_difference(first: DictConfig, second: DictConfig) -> Rows:
    """Keys whose values differ, each with both; where runs write to does not count."""

    def waits(side: DictConfig) -> bool:
        return any(entry.is_interpolation for entry in walk(side))

    is_mixed = waits(first) != waits(second)
    if is_mixed:  # what the one waits for, the data has told the other
        early, late = sorted((first, second), key=waits)
        OmegaConf.set_struct(late, False)
        late.spec = early.get("spec")
    return _rows(config_values(first, resolve=is_mixed), config_values(second, resolve=is_mixed))


def record_difference(left: RunRecord, right: RunRecord) -> Rows:
    """What of two records differs and can change an outcome: code, packages, machine, data, seed."""
    sides = ({name: getattr(record, name) for name in _MATTERS} for record in (left, right))
    first, second = ({key: to_yaml_line(value) for key, value in flatten(side)} for side in sides)
    return _rows(first, second)


def score_difference(left: RunRecord, right: RunRecord) -> Rows:
    """Scores of two runs that are not the same, those of the test first."""
    first, second = (
        {name: f"{value:.6g}" for name, value in run.metrics.items()} for run in (left, right)
    )
    differing = [
        name
        for name in {**first, **second}
        if repr(left.metrics.get(name)) != repr(right.metrics.get(name))
    ]
    names = sorted(differing, key=lambda name: (not name.startswith("test/"), name))
    return {
        name: (first.get(name), second.get(name)) for name in names if not name.startswith("lr-")
    }


def difference(first: str, second: str, config_dir: Path | None = None) -> Difference:
    """Compare two sides."""
    (left, record), (right, other) = read_side(first, config_dir), read_side(second, config_dir)
    config = config_difference(left, right)
    if record is None or other is None:
        return Difference(first, second, config, {}, {})
    derived = {"spec", *record.interpolations} & {"spec", *other.interpolations}
    config = {
        key: values
        for key, values in config.items()
        if not any(f"{key}.".startswith((f"{parent}.", f"{parent}[")) for parent in derived)
    }
    return Difference(
        first, second, config, record_difference(record, other), score_difference(record, other)
    )


def print_difference(difference: Difference) -> None:
    """Print what differs; `no difference` where nothing does."""
    blocks = {
        "config": difference.config,
        "record": difference.record,
        "scores": difference.scores,
    }
    console = Console(highlight=False, soft_wrap=True)
    if not any(blocks.values()):
        console.print("no difference")
        return
    titles = (difference.first or "the default config", difference.second or "the default config")
    for name, rows in blocks.items():
        if rows:
            console.print(name, style="bold")
            table = [("", *titles), *((key, *values) for key, values in rows.items())]
            cells = [
                [_ABSENT if cell is None else shorten(cell) for cell in row] for row in table
            ]
            print_rows(console, cells, ("", "red", "green"))


def config_values(config: DictConfig, *, resolve: bool = False) -> dict[str, str]:
    """Every value by its key; a list of plain values is one."""
    job: Any = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        plain = OmegaConf.to_container(job, resolve=resolve)
    except OmegaConfBaseException:  # `???`, or what only the data knows
        plain = OmegaConf.to_container(job, resolve=False)
    values: dict[str, str] = {}
    run_dir = str(config.get("run_dir") or "")
    for key, written in flatten(plain):
        if key == "run_dir" or (resolve and key in OF_SPEC):
            continue
        value = restore_auto(key, written)
        if isinstance(value, str) and run_dir and f"{value}/".startswith(f"{run_dir}/"):
            value = _RUN_DIR + value.removeprefix(run_dir)
        values[key] = to_yaml_line(value)
    return values


def _rows(first: Mapping[str, str], second: Mapping[str, str]) -> Rows:
    keys = dict.fromkeys((*first, *second))
    return {
        key: (first.get(key), second.get(key))
        for key in keys
        if first.get(key) != second.get(key)
    }
