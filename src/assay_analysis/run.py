"""A run in short, and what runs say under a key: their records, else their configs, opened only then."""

from __future__ import annotations

import functools
import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, final

import yaml

from assay.config.serialize import NOT_IDENTITY, REPETITIONS
from assay.errors import AssayError, first_line
from assay.files.symlinks import read_whole
from assay.paths import PACKAGES
from assay.quoting import reads_as_number
from assay.task.task_of import TASKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from assay.record.run_record import Cause, JobStatus
    from assay_analysis.journal import JobRecord

_WORDS = {"true": True, "false": False, "null": None}


def plain_value(value: Any) -> Any:
    """Text as what it reads as; a list as text, so that it can be compared and be a key."""
    if not isinstance(value, str):
        if value is None or isinstance(value, bool | int | float):
            return value
        return format_value(value)
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    # `1_000` is text to Hydra, and a number to Python.
    if "_" not in value:
        for kind in (int, float):
            with suppress(ValueError):
                return kind(value)
    return value


def format_value(value: Any) -> str:
    """A value as it is typed."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, dict):
        return (
            "{" + ",".join(f"{key}:{format_value(inner)}" for key, inner in value.items()) + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(format_value, value)) + "]"
    return str(value)


@final
@dataclass(frozen=True, slots=True)
class Run:
    """A run directory in short: ten thousand of them fit into a few tens of megabytes."""

    path: Path
    status: JobStatus
    cause: Cause = ""
    reason: str = ""
    name: str = ""
    started: str = ""
    seconds: float = 0.0
    seed: int = 0
    fingerprint: str = ""
    config_fingerprint: str = ""
    typed: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, Any] = field(default_factory=dict)
    directions: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, bool] = field(default_factory=dict)
    data_sha256: str = ""
    code: str = ""
    warnings: tuple[str, ...] = ()
    interpolations: Mapping[str, str] = field(default_factory=dict)
    fold: int | None = None

    def score(self, metric: str) -> float | None:
        """The score of the best checkpoint where checkpoints are kept by this metric, else the last one."""
        if self.best.get("monitor") == metric:
            return float(self.best["value"])
        value = self.metrics.get(metric)
        if value is None:
            return None
        return float(value)


Runs: TypeAlias = "Sequence[Run]"


def list_metrics(runs: Runs) -> list[str]:
    """All metrics that runs have logged or keep their checkpoints by."""
    logged = (name for run in runs for name in run.metrics)
    return list(dict.fromkeys([*logged, *(run.best["monitor"] for run in runs if run.best)]))


def typed_values(overrides: Iterable[str]) -> dict[str, str]:
    """Overrides by key, without what says where a run writes to or how a sweep goes."""
    values = {}
    for override in overrides:
        key, sign, value = override.partition("=")
        name = key.lstrip("+~")
        if name.partition(".")[0] != "hydra" and not name.startswith("hydra/"):
            values[name] = "~"
            if sign and not key.startswith("~"):
                values[name] = _QUOTED.sub(r"\2", value)
    return values


_QUOTED = re.compile(r"""\A(['"])(.*)\1\Z""", re.DOTALL)


def is_config(key: str) -> bool:
    """Whether a key is one in which configurations differ, not where or how often they run."""
    group = key.partition(".")[0]
    return (
        group not in (*NOT_IDENTITY, *REPETITIONS)
        and key != "sweep"
        and not key.startswith("hydra/")
    )


def is_same_value(value: Any, other: Any) -> bool:
    """Whether two values are the same, however they were typed."""
    first = plain_value(value)
    second = plain_value(other)
    return first == second and isinstance(first, bool) == isinstance(second, bool)


_LONG = 8
"""Characters of a number that was probably drawn, not typed."""


def varying_overrides(jobs: Iterable[JobRecord]) -> list[dict[str, str]]:
    """Overrides that not all jobs share, by key, one dictionary per job."""
    typed = [dict(word.lstrip("+").partition("=")[::2] for word in job.overrides) for job in jobs]
    keys = dict.fromkeys(key for values in typed for key in values)
    # Alone, everything that was typed stands for it.
    different = [
        key for key in keys if len(typed) == 1 or len({values.get(key) for values in typed}) > 1
    ]
    return [{key: values[key] for key in different if key in values} for values in typed]


def shorten_values(values: Mapping[str, str | None]) -> dict[str, str]:
    """Values that are there as they are shown: numbers that were drawn, with four significant digits.

    >>> shorten_values({"optimizer.lr": "0.004903618401148253", "seed": "1764460800"})
    {'optimizer.lr': '0.004904', 'seed': '1764460800'}
    """
    return {
        key: f"{float(value):.4g}" if _is_drawn(value) else value
        for key, value in values.items()
        if value is not None
    }


def _is_drawn(value: str) -> bool:
    return len(value) > _LONG and reads_as_number(value) and not value.isdecimal()


def format_values(values: Mapping[str, str | None]) -> str:
    """Values in short, each after its key."""
    return " ".join(f"{key}={value}" for key, value in shorten_values(values).items())


_MOST = 6
"""Columns for keys that were not typed, at most."""
_FINGERPRINT = "config"
Values = list[dict[str, str | None]]


def config_columns(
    runs: Runs, requested: Sequence[str], configs: ConfigValues
) -> tuple[list[str], Values, list[str]]:
    """Keys in which configurations differ, the values of each, and what there is to say about them."""

    def texts(keys: Sequence[str]) -> Values:
        rows = [{key: value(run, key, configs) for key in keys} for run in runs]
        return [
            {key: None if cell is None else format_value(cell) for key, cell in row.items()}
            for row in rows
        ]

    if requested:
        return list(requested), texts(requested), []
    keys = [key for key in _candidates(runs) if _differs(key, runs, configs)]
    if len(runs) == 1:
        keys = [key for key in runs[0].typed if is_config(key)]
    repeated = len({run.config_fingerprint for run in runs}) < len(runs)
    keys += [
        key
        for key in ("seed", "fold")
        if repeated and len({getattr(run, key) for run in runs}) > 1
    ]
    if len({run.typed.get("name") for run in runs}) > 1:
        keys.insert(0, "name")
    values = texts(keys)
    alike = _group_alike(values, runs)
    untyped = list(dict.fromkeys(key for group in alike for key in _list_untyped(group, configs)))
    if alike:
        keys += untyped[:_MOST]
        values = texts(keys)
    notes = []
    if (left_out := len(untyped) - _MOST) > 0:
        notes = [
            f"rows that were typed alike differ in {left_out} more keys; `assay diff` names all"
        ]
    if _group_alike(values, runs):
        keys.append(_FINGERPRINT)
        for run, row in zip(runs, values, strict=True):
            row[_FINGERPRINT] = run.config_fingerprint[:8]
    return keys, values, notes


def _candidates(runs: Runs) -> list[str]:
    """Groups, then what was typed; no experiment that only some have: what differs are its values."""
    groups = dict.fromkeys(key for run in runs for key in run.choices)
    typed = dict.fromkeys(key for run in runs for key in run.typed if key not in groups)
    without = {
        key
        for key in groups
        if PACKAGES.get(key) == "_global_" and not all(run.choices.get(key) for run in runs)
    }
    return [key for key in (*groups, *typed) if is_config(key) and key not in without]


def _differs(key: str, runs: Runs, configs: ConfigValues) -> bool:
    """Whether runs differ in a key; configs are read up to the first that does."""
    reference = None
    if runs:
        reference = value(runs[0], key, configs)
    others = (value(run, key, configs) for run in runs)
    return any(
        other != reference and plain_value(other) != plain_value(reference) for other in others
    )


def _group_alike(values: Values, runs: Runs) -> list[list[Run]]:
    """Runs of different configurations that cannot be told apart by their columns."""
    groups: dict[Any, dict[str, Run]] = {}
    for run, row in zip(runs, values, strict=True):
        groups.setdefault(tuple(map(plain_value, row.values())), {})[run.config_fingerprint] = run
    return [list(group.values()) for group in groups.values() if len(group) > 1]


def _list_untyped(runs: Runs, configs: ConfigValues) -> list[str]:
    """The keys in which the configs of runs differ that were typed alike."""
    try:
        rows = [configs.all_of(run) for run in runs]
    except AssayError:  # the hash tells them apart
        return []
    derived = set.intersection(*(set(run.interpolations) for run in runs))
    keys = dict.fromkeys(
        key
        for row in rows
        for key in row
        if is_config(key) and key not in derived and "[" not in key
    )
    return [key for key in keys if len({row.get(key) for row in rows}) > 1]


FILE = "config.yaml"
_SOURCE = tuple(f"data.source.{name}" for name in ("path", "root", "test_path", "target"))
OF_THE_RECORD = ("status", "cause", "name", "seed", "fold", "started", "seconds")
"""What a record says beside the config, under these keys."""
_LARGEST = 8 << 20
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@final
class ConfigValues:
    """Values of configs by their full keys."""

    def __init__(self) -> None:
        self._configs: dict[Path, dict[Any, Any]] = {}
        self._parse_piece = functools.cache(_parse_yaml)

    def value(self, run: Run, key: str) -> str | None:
        """One value as it is typed; None where the config has no such key, or a whole node under it."""
        node: Any = self._load(run)
        for name in key.split("."):
            if not isinstance(node, dict) or name not in node:
                return None
            node = node[name]
        if isinstance(node, dict) and node:
            return None
        return format_value(node)

    def all_of(self, run: Run) -> dict[str, str]:
        """Every value by its key; a list of plain values is one."""
        return {key: format_value(value) for key, value in flatten(self._load(run))}

    def loss(self, run: Run) -> Mapping[str, str]:
        """As `loss_terms`; of a run whose config cannot be read, the option alone."""
        try:
            config = self._load(run)
        except AssayError:
            return {"loss": format_value(run.choices.get("loss"))}
        return loss_terms(
            config, [key for key, text in run.interpolations.items() if "${spec." in text]
        )

    def _load(self, run: Run) -> dict[Any, Any]:
        if run.path not in self._configs:
            try:
                content = read_whole(run.path / FILE, _LARGEST)
            except OSError as error:
                raise AssayError(f"{run.path / FILE} cannot be read: {error.strerror}") from error
            self._configs[run.path] = self._parse(run, content.decode("utf-8", "surrogateescape"))
        return self._configs[run.path]

    def _parse(self, run: Run, text: str) -> dict[Any, Any]:
        """A whole config, piece by piece where that can be: most pieces are those of other runs."""
        whole: dict[Any, Any] = {}
        # an anchor counts elsewhere
        for piece in [] if "&" in text else filter(None, _PIECES.split(text)):
            try:
                node = self._parse_piece(piece)
            except (
                yaml.YAMLError,
                ValueError,
                RecursionError,
            ):  # such as an alias of another piece
                node = None
            if not isinstance(node, dict) or not all(piece.startswith(f"{key}:") for key in node):
                return _parse_config(run, text)
            whole |= node
        return whole or _parse_config(run, text)


_PIECES = re.compile(r"^(?=[^\s#-])", re.MULTILINE)


def loss_terms(config: Mapping[str, Any], derived_keys: Iterable[str] = ()) -> dict[str, str]:
    """What makes a loss the quantity it is, by key: its class and arguments, and the targets it sees."""
    module, data = (
        node if isinstance(node := config.get(name), dict) else {} for name in ("module", "data")
    )
    source = data.get("source")
    loss = config.get("loss")
    # which sets them when the job is built
    if isinstance(loss, dict) and data.get("balance") == "weights":
        weights = {name: "balanced" for name in ("class_weight", "pos_weight") if name in loss}
        loss = loss | {name: text for name, text in weights.items() if loss[name] is None}
    parts = {
        "loss": loss,
        "module._target_": module.get("_target_"),
        "data.standardize_targets": data.get("standardize_targets"),
    }
    task = TASKS.get(str(data.get("task")))
    if task is not None and task.reconstructs:  # the inputs are the targets
        parts["data.transform"] = data.get("transform")
    if task is not None and task.compares_views:  # the other samples of a batch are the classes
        parts["data.eval_batch_size"] = data.get("eval_batch_size")
    if isinstance(source, dict) and str(source.get("_target_")).endswith(".TextFiles"):
        parts |= {f"data.source.{name}": source.get(name) for name in ("tokens", "vocab_size")}
    terms = {
        key: format_value(value)
        for top, node in parts.items()
        for key, value in flatten(node, top)
    }
    derived = set(derived_keys)
    return {
        key: text for key, text in terms.items() if key not in derived and "${spec." not in text
    }


def find_unlike_losses(
    losses: Iterable[tuple[Any, Mapping[str, str]]],
) -> dict[str, tuple[str, ...]]:
    """In what losses are not the same quantity, each key with its values; empty where they are."""
    pairs = list(losses)
    keys = dict.fromkeys(key for _, terms in pairs for key in terms)
    values = {
        key: {plain_value(terms.get(key)): terms.get(key, "–") for _, terms in pairs}
        for key in keys
    }
    differing = {
        key: tuple(sorted(texts.values())) for key, texts in values.items() if len(texts) > 1
    }
    options = sorted({str(option) for option, _ in pairs})
    if differing and len(options) > 1:
        return {"loss": tuple(options)}
    return differing


def _parse_config(run: Run, text: str) -> dict[Any, Any]:
    try:
        plain = _parse_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise AssayError(f"{run.path / FILE} is not YAML: {first_line(error)}") from error
    if not isinstance(plain, dict):
        raise AssayError(f"{run.path / FILE} does not hold a mapping")
    return plain


def _parse_yaml(text: str) -> Any:
    loader = _LOADER(text)  # a safe one, by PyYAML in C where there is one
    try:
        plain = loader.get_single_data()
    finally:
        loader.dispose()
    if "&" in text:
        try:
            for _ in flatten(plain):
                pass
        except RecursionError:
            raise ValueError("an alias stands for a node that it is part of") from None
    return plain


def flatten(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its full key; a list of plain values is one."""
    if isinstance(node, dict) and node:
        for name, inner in node.items():
            yield from flatten(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list) and any(isinstance(item, dict | list) for item in node):
        for index, inner in enumerate(node):
            yield from flatten(inner, f"{key}[{index}]")
    else:
        yield key, node


def value(run: Run, key: str, configs: ConfigValues) -> Any:
    """The value of a run under a key: a number, text, or None if absent."""
    if key in OF_THE_RECORD:
        return getattr(run, key)
    if key in run.choices:
        return format_value(run.choices[key])
    score = run.score(key)
    if score is None:
        return value_of(run, key, configs)
    return score


def value_of(run: Run, key: str, configs: ConfigValues) -> str | None:
    """A value of a run's config as it was typed, else as its config has it; None if absent."""
    typed = run.typed.get(key)
    if typed is not None and "$" not in typed:
        return typed
    try:
        if run.status != "broken":
            return configs.value(run, key)
        return None
    except AssayError:  # its config is damaged; its record is not
        return typed


def find_unlike_data(runs: Runs, configs: ConfigValues) -> list[str]:
    """Kinds of data, in words, where there are several: another option, file, target or content."""
    distinct = list({(run.config_fingerprint, run.data_sha256): run for run in runs}.values())
    digests = {run.data_sha256 for run in distinct}
    if len(digests) < 2 and "" not in digests:
        return []
    options = sorted({str(run.choices.get("data")) for run in distinct})
    if len(options) > 1:
        return options
    kinds = sorted({_source(run, configs) or "as in its option" for run in distinct})
    if len(kinds) > 1:
        return kinds
    if _have_changed(runs, configs):
        return [f"{kinds[0]}, changed in between"]
    return []


def _have_changed(runs: Runs, configs: ConfigValues) -> bool:
    """Whether finished runs, of each job the last one, name the same data and had others."""
    in_order = sorted(runs, key=lambda run: run.started)
    last = {run.fingerprint: run for run in in_order if run.status == "finished"}
    digests: dict[Any, str] = {}
    for run in last.values():
        derived = {key for key, text in run.interpolations.items() if "spec." in text}
        with suppress(AssayError):  # its config is damaged
            named = frozenset(
                item
                for item in configs.all_of(run).items()
                if item[0].startswith("data.") and item[0] not in {*derived, "data.seed"}
            )
            if digests.setdefault(named, run.data_sha256) != run.data_sha256:
                return True
    return False


def _source(run: Run, configs: ConfigValues) -> str:
    values = {key: value_of(run, key, configs) for key in _SOURCE}
    return ", ".join(
        f"{key}={text}" for key, text in values.items() if text not in (None, "null")
    )
