"""Do the arguments of every `_target_` fit its signature?"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.assemble.node import NOT_ARGUMENTS
from assay.config.did_you_mean import did_you_mean
from assay.config.omegaconf_internals import parent_of, root_of
from assay.config.tree import source_key, target_nodes
from assay.config.unread_keys import MODULE_GROUPS, OUR_DATA, OUR_MODULE
from assay.errors import ConfigError
from assay.record.secrets import STRUCK, is_secret_key
from assay.targets.allowed_targets import slot_of
from assay.targets.annotation import (
    NestedTarget,
    accepts,
    as_typed,
    as_typed_key,
    choices_of,
    example_of,
    format_annotation,
)
from assay.targets.call_signature import call_of
from assay.targets.resolve import WORDS, check_words, import_tasks, resolve_class, resolve_targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.targets.call_signature import Call


@final
@dataclass(frozen=True)
class InjectedArguments:
    """Arguments of a call beyond those in its node."""

    by_position: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    otherwise: str = ""


_TRAINER = {
    "callbacks": "callbacks=[…] names them; see assay configs callbacks",
    "logger": "logger=[…] names them; see assay configs logger",
    "plugins": "precision=… and trainer.strategy=… choose them",
    "enable_checkpointing": "callbacks=[checkpoint] is what keeps checkpoints",
    "enable_progress_bar": "callbacks=[progress_bar] is what shows one",
    "enable_model_summary": "callbacks=[model_summary] is what shows one",
    "use_distributed_sampler": "leave it out",
    "default_root_dir": "hydra.run.dir=… is the run directory",
}
_MODULE = {
    **{group: f"{group}=…" for group in MODULE_GROUPS},
    "task": "data=…, whose spec names it",
    "schedule": "scheduler.interval=…, scheduler.frequency=…, scheduler.monitor=…",
    "target_scale": "data.standardize_targets=…",
    "channels_last": "trainer.channels_last=true",
}
_CALLED_WITH = {"optimizer": 1, "scheduler": 1, "param_groups": 2}


def injected_arguments(config: DictConfig, key: str) -> InjectedArguments | None:
    """Arguments that are passed later to the call of a node; None if they are unknown."""
    ours = OmegaConf.select(config, "module._target_", default=OUR_MODULE) == OUR_MODULE
    if key == "trainer":
        return InjectedArguments(names=_TRAINER)
    if key == "module" and ours:
        return InjectedArguments(names=_MODULE)
    node = OmegaConf.select(config, key)
    if not (node is not None and node.get("_partial_")):
        return InjectedArguments()
    if key in _CALLED_WITH and ours:
        return InjectedArguments(_CALLED_WITH[key])
    called = _arguments_from_parent(key, node)
    if called is None:
        return None
    return InjectedArguments(called[0], called[1], "take data=custom; ")


def _arguments_from_parent(key: str, node: DictConfig) -> tuple[int, Mapping[str, str]] | None:
    """What the class of the node around calls this one with, as it says in `calls_with`."""
    parent = parent_of(node)
    root = root_of(node)
    if (
        not isinstance(parent, DictConfig)
        or "_target_" not in parent
        or not isinstance(root, DictConfig)
    ):
        return None
    outer, _, name = key.rpartition(".")
    kind = resolve_class(outer, parent)
    called: tuple[int, Mapping[str, str]] | None = getattr(kind, "calls_with", {}).get(name)
    return called


_OF_A_LOSS = "; a loss is a class, a torch.nn.Module"
_USED_AS_THEY_ARE = (
    "data",
    "model",
    "loss",
    "metrics",
    "module",
    "trainer",
    "callbacks",
    "logger",
)
_IS_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def check_signatures(config: DictConfig, nodes: Sequence[str] | None = None) -> None:
    """Refuse arguments that no call would take, and calls that lack one."""
    resolve_targets(config, nodes)
    import_tasks(config)
    left_alone: list[str] = []
    for key, node in target_nodes(config):
        if nodes is not None and key.partition(".")[0] not in nodes:
            continue
        # Hydra leaves what is inside such a node to its class, which may add arguments.
        inside = any(key.startswith((f"{parent}.", f"{parent}[")) for parent in left_alone)
        if inside:
            later = None
        else:
            later = injected_arguments(config, key)
        _check_node(key, node, later)
        if node.get("_recursive_") is False:
            left_alone.append(key)


def _check_node(key: str, node: DictConfig, later: InjectedArguments | None) -> None:
    check_words(key, node)
    source = key == "data.source" and OmegaConf.select(root_of(node), "data._target_") == OUR_DATA
    if node.get("_partial_") and (source or slot_of(key)[0] in _USED_AS_THEY_ARE):
        partial_key = f"{key}._partial_"
        more = ""
        if key == "loss":
            more = _OF_A_LOSS
        hint = f"leave it out: ~{partial_key}{more}"
        raise ConfigError(
            "expected an object, not a function that creates it", key=partial_key, hint=hint
        )
    kind = resolve_class(key, node)
    call = call_of(kind)
    if call is not None:  # built-ins have no signature
        _check_call(key, node, call, later)
    # which the class makes objects of
    for name, inner in getattr(kind, "mapping_arguments", {}).items():
        within = node.get(name)
        call = call_of(inner)
        if isinstance(within, DictConfig) and call is not None:
            _check_call(f"{key}.{name}", within, call, InjectedArguments())
        elif within is not None:
            raise ConfigError(f"expected a mapping, got {as_typed(within)}", key=f"{key}.{name}")


def _check_call(key: str, node: DictConfig, call: Call, later: InjectedArguments | None) -> None:
    reserved = ("_target_", *WORDS, *NOT_ARGUMENTS.get(key, ()))
    names = [name for name in map(str, node) if name not in reserved]
    positional = node.get("_args_") or []
    injected = later or InjectedArguments()
    count = len(positional) + injected.by_position
    by_position = call.by_position
    if positional and count > len(by_position) and call.many is None:
        message = f"{call.name} takes {len(by_position)} positional arguments, got {count}"
        raise ConfigError(message, key=f"{key}._args_", hint=call.in_short())
    ours = f"assay itself passes {{!r}} to {call.name}"
    twice = {
        **dict.fromkeys(by_position[len(positional) : count], (ours, "leave it out")),
        **{name: (ours, instead) for name, instead in injected.names.items()},
        **dict.fromkeys(
            by_position[: len(positional)],
            ("given twice: also by position, in _args_", "leave one out"),
        ),
    }
    for name in names:
        if name in twice:
            message, instead = twice[name]
            hint = f"{instead}\n    {call.in_short([name])}"
            raise ConfigError(message.format(name), key=f"{key}.{name}", hint=hint)
        if name not in call.parameters and not call.takes_any:
            hint = "it takes no arguments"
            if call.parameters:
                hint = f"it takes: {call.in_short([name])}"
            raise ConfigError(
                f"{call.name} has no argument {name!r}{did_you_mean(name, call.parameters, '; ')}",
                key=f"{key}.{name}",
                hint=hint,
            )
    root: Any = root_of(node)
    for name, value in _values(node, names):
        # Which mode suits a monitor: assay.assemble.node.
        if name != "mode" or not isinstance(node.get("monitor"), str):
            _check_value(
                source_key(root, f"{key}.{name}"), value, call, call.parameters.get(name)
            )
    for index, value in _values(positional, range(len(positional))):
        parameter = None
        if index < len(by_position):
            parameter = call.parameters[by_position[index]]
        _check_value(f"{key}._args_[{index}]", value, call, parameter)
    if later is None:
        return
    if refused := [
        name for name in later.names if name not in call.parameters and not call.takes_any
    ]:
        message = f"{call.name} has no argument {refused[0]!r}, which assay passes"
        raise ConfigError(
            message, key=key, hint=f"{later.otherwise}it takes: {call.in_short([refused[0]])}"
        )
    _check_missing(key, node, call, {*names, *by_position[:count], *later.names})


def _check_value(key: str, value: Any, call: Call, parameter: inspect.Parameter | None) -> None:
    if parameter is not None:
        expected = parameter.annotation
    else:
        expected = call.many
    default = None
    if parameter is not None:
        default = parameter.default
    if expected is None or accepts(expected, value):
        return
    if parameter is not None and type(value) is type(default) and not accepts(expected, default):
        return  # the annotation says less than the class takes: the default does not fit it either
    shown = f"{value!r} (text)"
    if not (isinstance(value, str) and _IS_NUMBER.fullmatch(value)):
        shown = as_typed(value)
    if is_secret_key(key):
        shown = STRUCK
    suggestion = _suggest(as_typed_key(key), value, expected, default)
    about: list[str] = []
    if parameter is not None:
        about = [parameter.name]
    signature = call.in_short(about)
    hint = signature
    if suggestion:
        hint = f"{suggestion}\n    {signature}"
    raise ConfigError(f"expected {format_annotation(expected)}, got {shown}", key=key, hint=hint)


def _suggest(key: str, value: Any, expected: Any, default: Any) -> str:
    if isinstance(value, NestedTarget) and value.kind is functools.partial:
        return "leave out its _partial_: true"
    if isinstance(value, str) and _IS_NUMBER.fullmatch(value) and accepts(expected, float(value)):
        return f"without quotes: {key}={value}"
    if value is not None and not isinstance(value, list | dict | NestedTarget):
        if accepts(expected, str(value)):
            return shlex.quote(f'{key}="{value}"')  # a column named 2015
        # 32 for an image's height and width, but no 3 for betas
        pair = not isinstance(default, list | tuple)
        for several in ([value], [value, value])[: 1 + pair]:
            if accepts(expected, several):
                return f"{key}=[{','.join(map(as_typed, several))}]"
    meant = []
    if isinstance(value, str):
        meant = difflib.get_close_matches(value, choices_of(expected), n=1)
    if meant:
        example = meant[0]
    else:
        example = example_of(expected, default)
    if example:
        return f"for example {key}={example}"
    return ""


def _check_missing(key: str, node: DictConfig, call: Call, supplied: set[str]) -> None:
    missing = [name for name in call.required if name not in supplied]
    if not missing:
        return
    is_called_later = key in _CALLED_WITH or _arguments_from_parent(key, node) is not None
    if is_called_later and not node.get("_partial_"):
        raise ConfigError(
            f"{call.name} can only be created later: it needs {missing[0]!r}, which assay passes",
            key=key,
            hint=f"add to its YAML: _partial_: true (or type +{key}._partial_=true)",
        )
    typed = " ".join(f"+{as_typed_key(key)}.{name}=…" for name in missing)
    what = "each of these"
    if len(missing) == 1:
        what = "this"
    more = ""
    if key == "loss":
        more = _OF_A_LOSS
    raise ConfigError(
        f"{call.name} needs {what}",
        key=", ".join(f"{key}.{name}" for name in missing),
        hint=f"add {typed}{more}\n    {call.in_short()}",
    )


def _values(node: Any, names: Any) -> Iterator[tuple[Any, Any]]:
    """Arguments that are known before the data is read."""
    for name in names:
        with suppress(OmegaConfBaseException):
            yield name, _to_plain(node, name)


def _to_plain(node: Any, name: Any) -> Any:
    value = node[name]
    if isinstance(value, DictConfig):
        if "_target_" in value:
            return NestedTarget(_kind(value))
        return {index: _to_plain(value, index) for index in value}
    if isinstance(value, ListConfig):
        return [_to_plain(value, index) for index in range(len(value))]
    return value


def _kind(node: DictConfig) -> type | None:
    """The class that a node will have; None if a function or the parent decides."""
    if node.get("_partial_"):
        return functools.partial
    parent = parent_of(node)
    while parent is not None:  # such a class makes what is inside it
        if isinstance(parent, DictConfig) and parent.get("_recursive_") is False:
            return None
        parent = parent_of(parent)
    try:
        target = resolve_class("", node)
    except ConfigError:
        return None  # reported at the node itself
    if inspect.isclass(target):
        return target
    return None
