"""Build the object that a node of a config describes, or explain the failure with its key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from lightning.fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean, list_names
from assay.config.omegaconf_internals import kept
from assay.config.serialize import resolved, resolved_node
from assay.config.tree import walk, walk_plain
from assay.config.unread_keys import OUR_MODULE
from assay.errors import AssayError, ConfigError, describe_error, first_line, user_frame
from assay.record.scores import is_better_low
from assay.targets.allowed_targets import read_trusted_packages
from assay.targets.call_signature import call_of, example_hint
from assay.targets.resolve import (
    CallError,
    check_object,
    import_tasks,
    install_command,
    instantiate,
    resolve_class,
    resolve_node,
)
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torchmetrics import MetricCollection


_PLAIN_KINDS = (ValueError, TypeError, MisconfigurationException, ModuleNotFoundError)
_NAMES = re.compile(r"^(\w+)\b|[`'](\w+)\b|\b(\w+)=")
"""A name at the start, in quotes, or before an equals sign."""
_VALUE = re.compile(r"[:=] *(-?\w[\w.]*(?:[eE]-\d+)?)$")
_NOT_IN_SPEC = re.compile(r"Interpolation key '(spec\.\w+)' not found")


def build_error(error: BaseException, config: DictConfig, key: str) -> AssayError:
    """Find the cause, and the value at fault, of a failed call."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AssayError):
            return cause
        if isinstance(cause, OmegaConfBaseException):
            return _dangling_error(cause, config, key)
        cause = cause.__cause__
    text = " ".join(str(error).split()) or type(error).__name__
    node = OmegaConf.select(config, key)
    if isinstance(error, ModuleNotFoundError):
        hint = "install the missing package"
        if error.name:
            hint = install_command(key, error.name)
        return ConfigError(text, key=key, hint=hint)
    fault = _value_at_fault(text, node, key)
    if not isinstance(error, _PLAIN_KINDS):
        text = f"cannot be built with these values: {describe_error(error)}"
    elif frame := user_frame(error):
        text = f"{text} ({frame})"
    shown = fault
    if text.startswith(f"{fault}="):
        shown = ""
    return ConfigError(text, key=shown, hint=_hint(config, fault))


def _hint(config: DictConfig, key: str) -> str:
    group, _, name = key.partition(".")
    if group == "metrics" and config.get("spec"):
        return task_of(config.spec.task).suits
    if group == "callbacks" and "." not in name:
        return f"or leave it out: ~{key}"
    if key == "trainer" and config.trainer.get("strategy", "auto") != "auto":
        return "trainer.strategy=auto, or what the strategy requires"
    return example_hint(config, key)


def _dangling_error(cause: OmegaConfBaseException, config: DictConfig, key: str) -> ConfigError:
    text = first_line(cause)
    fault = str(getattr(cause, "full_key", None) or key)
    match = _NOT_IN_SPEC.search(text)
    if match is None:
        return ConfigError(text, key=fault, hint=f"{fault}=VALUE")
    node = OmegaConf.select(config, key, throw_on_resolution_failure=False)
    if isinstance(node, DictConfig):
        asking = (
            entry for entry in walk(node, key) if entry.is_interpolation and match[1] in entry.raw
        )
        fault = next((entry.key for entry in asking), fault)
    names = [f"spec.{name}" for name in config.get("spec") or {}]
    guess = did_you_mean(match[1], names, "; ")
    hint = f"{fault}=VALUE"
    if names and not guess:
        hint = f"it has: {list_names(names, match[1])}"
    return ConfigError(f"the data has no {match[1]!r}{guess}", key=fault, hint=hint)


def _value_at_fault(text: str, node: Any, key: str) -> str:
    """The full key of the argument that the message names, where it is clear; else the node's."""
    if not isinstance(node, DictConfig):
        return key
    # A word of English has no underscore.
    words = {"".join(match).lower() for match in _NAMES.findall(text)} | {
        *re.findall(r"\w+_\w+", text)
    }
    written = [
        entry
        for entry in walk(node, key)
        if not (isinstance(entry.node, DictConfig) or entry.is_interpolation or entry.is_missing)
    ]
    named = [entry.key for entry in written if str(entry.name) in words]
    if not named and (value := _VALUE.search(text.rstrip("."))):
        named = [entry.key for entry in written if str(entry.raw) == value[1]]
    if len(named) == 1:
        return named[0]
    return key


NOT_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "data": ("spec",),
    "scheduler": ("interval", "frequency", "monitor"),
    "trainer": (
        "compile",
        "channels_last",
        "interface",
        "matmul_precision",
        "micro_batch",
        "timeout_s",
    ),
}
"""Keys of a node that assay reads itself; the others are arguments of its target."""


def plain_node(config: DictConfig, key: str) -> Any:
    """A node as plain data: resolved, or as written if it cannot be resolved yet."""
    if resolved(config) is not None:
        return resolved_node(config, key)
    node = OmegaConf.select(config, key)
    if not OmegaConf.is_config(node):
        return node
    try:
        return OmegaConf.to_container(node, resolve=True)
    except Exception:  # an interpolation of what is not known yet
        return OmegaConf.to_container(node, resolve=False)


def build(
    config: DictConfig, key: str, edit: Callable[[Any], None] | None = None, /, **objects: Any
) -> Any:
    """Build the object that a node of a config describes, or what `edit` makes of it."""
    try:
        node = OmegaConf.select(config, key)
        if not node:
            return None
        import_tasks(config)
        tree = resolve_node(config, key, node, NOT_ARGUMENTS.get(key, ()))
        if edit is not None:
            edit(tree)
        instance = instantiate(tree, key, read_trusted_packages(config), **objects)
        check_object(key, instance)
        return instance
    except CallError as error:
        raise build_error(error.reason, config, error.key) from error.reason
    except OmegaConfBaseException as error:
        raise build_error(error, config, key) from error


@kept
def build_metrics(config: DictConfig) -> dict[str, Any]:
    """The metrics of training and of evaluation; who uses them clones them."""
    return {stage: _build_collection(config, f"metrics.{stage}") for stage in ("train", "eval")}


def _build_collection(config: DictConfig, key: str) -> Any:
    """Metrics whose constructors have verified their arguments, whatever `validate_args` says of batches."""
    unvalidated = set[str]()

    def validate(tree: Any) -> None:
        for parts, value in walk_plain(tree):
            if isinstance(value, dict) and value.get("validate_args") is False:
                value["validate_args"] = True
                unvalidated.update(map(str, parts))

    collection = build(config, key, validate)
    if unvalidated:
        for name, metric in collection.items(keep_base=True, copy_state=False):
            if str(name).rpartition("/")[2] in unvalidated:
                for inner in metric.modules():
                    if hasattr(inner, "validate_args"):
                        inner.validate_args = False
    return collection


Mode = Literal["min", "max"]
AUTO = "auto"
FORCED = ("force_min", "force_max")
WRITTEN = (AUTO, "min", "max", *FORCED)
"""What a `mode` may say."""
_WORDS = {"min": "lower", "max": "higher"}


def score_directions(
    config: DictConfig, metrics: Mapping[str, Any] | None = None
) -> dict[str, Mode]:
    """Which way each score of a job is better, as far as its metrics say it."""
    if config.module._target_ != OUR_MODULE:
        return {}
    metrics = metrics or build_metrics(config)
    stages = {"train": metrics["train"], "val": metrics["eval"], "test": metrics["eval"]}
    return {
        name: mode
        for stage, built in stages.items()
        for name, mode in directions(built, stage).items()
    }


def mode_argument(
    config: DictConfig,
    key: str,
    known: Callable[[DictConfig], Mapping[str, Mode]] = score_directions,
) -> dict[str, Mode]:
    """What to call a node's target with, beside what the node says: its `mode`, or nothing."""
    node = OmegaConf.select(config, key)
    mode_key = f"{key}.mode"
    if not isinstance(node, DictConfig):
        return {}
    written = node.get("mode")
    metric = node.get("monitor")
    if not isinstance(metric, str):
        if written in (AUTO, *FORCED):
            message = "expected the name of a metric to monitor"
            monitor = f"{key}.monitor"
            raise ConfigError(message, key=monitor, hint=f"{monitor}=val/loss")
        return {}
    call = call_of(resolve_class(key, node))
    if call is None or "mode" not in call.parameters:
        return {}
    if written not in (None, *WRITTEN):
        raise ConfigError(
            f"expected one of {', '.join(WRITTEN)}, got {written!r}",
            key=mode_key,
            hint=f"{mode_key}={AUTO}",
        )
    stated: Mode = "max"
    if written in ("min", "force_min"):
        stated = "min"
    if written in FORCED:
        return {"mode": stated}
    better: Mode | None = "min"
    if not is_better_low(metric):
        better = known(config).get(metric)
    if written in (None, AUTO):
        if better is None:
            says = ", because a custom module logs it"
            if config.module._target_ == OUR_MODULE:
                says = ""
            message = f"it is not known whether a higher or a lower {metric} is better{says}"
            raise ConfigError(message, key=mode_key, hint=f"{mode_key}=max, or {mode_key}=min")
        return {"mode": better}
    if better is not None and better != stated:
        raise ConfigError(
            f"a {_WORDS[better]} {metric} is better, but mode={stated} reverses that",
            key=mode_key,
            hint=f"{mode_key}={AUTO}; to select the worst anyway: {mode_key}=force_{stated}",
        )
    return {"mode": stated}


_ONLY_DRAWN = re.compile(
    "CohenKappa|Matthews|Hinge|Coverage|Cosine|ExplainedVariance|RankCorr|Similarity|Angle|Quality"
)
"""Metrics of torchmetrics whose values leave the bounds, 0 and 1, that they declare for plots."""


def score_shares(metrics: Mapping[str, MetricCollection]) -> dict[str, bool]:
    """Whether each score lies between 0 and 1, by its name without its subset, where a metric has bounds."""
    shares = {}
    for collection in metrics.values():
        for name, metric in collection.items(keep_base=False, copy_state=False):
            bounds: tuple[Any, Any] = (metric.plot_lower_bound, metric.plot_upper_bound)
            is_share = bounds == (0, 1) and not _ONLY_DRAWN.search(type(metric).__name__)
            if bounds != (None, None):
                shares[str(name).removeprefix(collection.prefix or "")] = is_share
    return shares


def directions(metrics: MetricCollection, stage: str) -> dict[str, Mode]:
    """Which way each score of a stage is better, as torchmetrics' `higher_is_better` says."""
    modes: dict[str, Mode] = {f"{stage}/loss": "min"}
    named = metrics.clone(prefix=f"{stage}/")
    for name, metric in named.items(keep_base=False, copy_state=False):
        higher: bool | None = metric.higher_is_better
        if higher is not None:
            if higher:
                modes[str(name)] = "max"
            else:
                modes[str(name)] = "min"
    return modes
