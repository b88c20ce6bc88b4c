"""What differs between two runs, config files, or lists of overrides."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.analysis.run import flatten
from assay.compose.compose import compose, job_config
from assay.compose.origin import name_source, to_yaml_line
from assay.compose.recipe import OF_SPEC, restore_auto
from assay.config.tree import walk
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError
from assay.record.run_record import FILE, RunRecord
from assay.terminal import Console, print_rows, shortened

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_ABSENT = "not there"
_MATTERS = ("status", "seed", "data_sha256", "patch_sha256", "git", "machine", "packages", "model")
_RUN_DIR = "${run_dir}"


@final
@dataclass(frozen=True)
class Side:
    """One of the two that are compared."""

    name: str
    config: DictConfig
    record: RunRecord | None = None


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


def read_side(name: str, config_dir: Path | None = None) -> Side:
    """Read a run directory or a config file, or compose overrides."""
    path = Path(name)
    if name.strip() and path.is_dir():
        if not (path / "config.yaml").is_file():
            raise AssayError(
                f"{name} is not a run directory: it has no config.yaml",
                hint="runs lie under outputs/<name>/<date>/",
            )
        record = RunRecord.load(path) if (path / FILE).is_file() else None
        return Side(name, load_mapping(path / "config.yaml"), record)
    if name.strip() and path.is_file():
        return Side(name, load_mapping(path))
    try:
        words = shlex.split(name)
    except ValueError as error:
        raise AssayError(f"{name!r} cannot be read: {error}", hint="close every quote") from error
    if any("=" not in word and not word.startswith("~") for word in words):
        raise AssayError(
            f"{name!r} is neither a run directory, nor a YAML file, nor overrides",
            hint="assay diff outputs/A outputs/B, or assay diff '' 'optimizer=sgd optimizer.lr=0.1'",
        )
    with name_source(words, config_dir):
        return Side(name, job_config(compose(words, config_dir)))


def config_difference(one: DictConfig, other: DictConfig) -> Rows:
    """Keys whose values differ, each with both; where runs write to does not count."""
    waiting = [any(entry.is_interpolation for entry in walk(side)) for side in (one, other)]
    is_mixed = waiting[0] != waiting[1]
    if is_mixed:  # what the one waits for, the data has told the other
        late, early = (one, other) if waiting[0] else (other, one)
        OmegaConf.set_struct(late, False)
        late.spec = early.get("spec")
    return _rows(config_values(one, resolve=is_mixed), config_values(other, resolve=is_mixed))


def record_difference(one: RunRecord, other: RunRecord) -> Rows:
    """What of two records differs and can change an outcome: code, packages, machine, data, seed."""
    sides = ({name: getattr(record, name) for name in _MATTERS} for record in (one, other))
    first, second = ({key: to_yaml_line(value) for key, value in flatten(side)} for side in sides)
    return _rows(first, second)


def score_difference(one: RunRecord, other: RunRecord) -> Rows:
    """Scores of two runs that are not the same, those of the test first."""
    first, second = ({name: f"{value:.6g}" for name, value in run.metrics.items()} for run in (one, other))
    names = sorted({**first, **second}, key=lambda name: (not name.startswith("test/"), name))
    names = [name for name in names if not name.startswith("lr-")]
    shown = [name for name in names if one.metrics.get(name) != other.metrics.get(name)]
    return {name: (first.get(name), second.get(name)) for name in shown}


def _is_derived(key: str, derived: Collection[str]) -> bool:
    """Whether a value is what others make it, in both runs."""
    return any(key == one or key.startswith((f"{one}.", f"{one}[")) for one in ("spec", *derived))


def difference(first: str, second: str, config_dir: Path | None = None) -> Difference:
    """What differs between two sides."""
    one, other = read_side(first, config_dir), read_side(second, config_dir)
    config = config_difference(one.config, other.config)
    if one.record is None or other.record is None:
        return Difference(first, second, config, {}, {})
    derived = set(one.record.interpolations) & set(other.record.interpolations)
    config = {key: values for key, values in config.items() if not _is_derived(key, derived)}
    records = one.record, other.record
    return Difference(first, second, config, record_difference(*records), score_difference(*records))


def print_difference(found: Difference) -> None:
    """Print what differs; `no difference` where nothing does."""
    blocks = {"config": found.config, "record": found.record, "scores": found.scores}
    console = Console(highlight=False, soft_wrap=True)
    if not any(blocks.values()):
        console.print("no difference")
        return
    titles = (found.first or "the default config", found.second or "the default config")
    for name, rows in blocks.items():
        if rows:
            console.print(name, style="bold")
            table = [("", *titles), *((key, *values) for key, values in rows.items())]
            shown = [[_ABSENT if cell is None else shortened(cell) for cell in row] for row in table]
            print_rows(console, shown, ("", "red", "green"))


def config_values(config: DictConfig, *, resolve: bool = False) -> dict[str, str]:
    """Every value by its key; a list of plain values is one."""
    job: Any = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        whole = OmegaConf.to_container(job, resolve=resolve)
    except OmegaConfBaseException:  # `???`, or what only the data knows
        whole = OmegaConf.to_container(job, resolve=False)
    found: dict[str, str] = {}
    run_dir = str(config.get("run_dir") or "")
    for key, written in flatten(whole):
        if key == "run_dir" or (resolve and key in OF_SPEC):
            continue
        value = restore_auto(key, written)
        if isinstance(value, str) and run_dir and (value == run_dir or value.startswith(f"{run_dir}/")):
            value = _RUN_DIR + value.removeprefix(run_dir)
        found[key] = to_yaml_line(value)
    return found


def _rows(first: Mapping[str, str], second: Mapping[str, str]) -> Rows:
    keys = dict.fromkeys((*first, *second))
    return {key: (first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)}
