"""May a config call this target? Judged by its name here, before any import; as an object in `resolve`."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, ListConfig
from omegaconf.errors import OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean
from assay.config.omegaconf_internals import child_node, dereferenced, is_interpolation, is_missing, raw_value
from assay.config.tree import walk
from assay.errors import ConfigError, first_line
from assay.quoting import is_dotted_path
from assay.targets.listed_places import EXACT, FUNCTIONS, PLACES, is_allowed, slot_of
from assay.targets.trust import KEY, is_library, within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.config.tree import Entry

_KEY = re.compile(r"\$\{(?!spec\b)\.*[A-Za-z_][\w.\[\]]*\}", re.ASCII)
"""A plain interpolation of one key."""
_DEEPEST = 16
_HOLDS = (
    "torch.nn, torch.optim, torchvision.{models,transforms,datasets,ops}, torchmetrics, "
    "lightning.pytorch.{callbacks,loggers,strategies,plugins,profilers}, assay"
)


def check_targets(config: DictConfig) -> None:
    """Refuse every target that lies neither where a config may look nor in a package the user trusts.

    The whole tree is looked at: nested nodes, lists, `_args_`, and what interpolations bring.

    Args:
        config: A job with its `trusted_packages`; nothing of what it names is imported.

    Raises:
        ConfigError: Naming the key of the first one.
    """
    packages = trusted_in(config)
    for key, target in targets(config):
        check_name(key, target, packages)


def trusted_in(config: DictConfig) -> tuple[str, ...]:
    """The packages that a job may import from, as `compose` or `read_config` wrote them into it."""
    return tuple(str(package) for package in config.get(KEY) or ())


def targets(config: DictConfig | ListConfig, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Full key of each node that has a `_target_`, and the target.

    Args:
        config: A job, or a part of one.
        prefix: Its full key.

    Raises:
        ConfigError: A target is an interpolation of anything but plain text.
    """
    yield from _targets(config, prefix, 0)


def _targets(config: DictConfig | ListConfig, prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for entry in walk(config, prefix):
        if entry.name == "_target_" and isinstance(entry.parent, DictConfig):
            yield from _target(entry.parent, entry.key)
        elif entry.is_interpolation:
            value = _value(entry)
            if isinstance(value, DictConfig | ListConfig):  # it stands elsewhere, but would be called here
                if depth == _DEEPEST:
                    raise ConfigError(
                        "interpolations lead in a circle", key=entry.key, hint=f"{entry.key}=VALUE"
                    )
                yield from _targets(value, entry.key, depth + 1)


def _value(entry: Entry) -> Any:
    if entry.asks_for_data:
        return None  # most of them, and OmegaConf's errors are slow
    try:
        return entry.parent[entry.name]
    except OmegaConfBaseException:
        return None  # it waits for the data; `ready` in assay.targets.resolve judges what it then is


def _target(node: DictConfig, key: str) -> Iterator[tuple[str, Any]]:
    of = key.removesuffix("_target_").removesuffix(".")
    written: Any = child_node(node, "_target_")
    raw = raw_value(written)
    if raw is None or is_missing(written):
        return
    if is_interpolation(written):
        raw = _behind(written, str(raw), key)
    check_trust(of, raw, node)
    yield of, raw


def check_trust(key: str, target: Any, node: Mapping[Any, Any]) -> None:
    """Refuse a node that brings its own trust.

    Raises:
        ConfigError: It does.
    """
    if isinstance(target, str) and target in FUNCTIONS and KEY in node:
        raise ConfigError("a config must not choose what is trusted", key=f"{key}.{KEY}", hint=f"{KEY}=[…]")


def _behind(written: Any, text: str, key: str) -> Any:
    """The plain text that an interpolated target takes."""
    hint = f"write the class itself: {key}=torch.nn.Identity"
    if not _KEY.fullmatch(text):
        raise ConfigError(f"{text} may be anything; a target is plain text or ${{KEY}}", key=key, hint=hint)
    try:
        return raw_value(dereferenced(written))
    except OmegaConfBaseException as error:
        raise ConfigError(first_line(error), key=key, hint=hint) from error


def check_name(key: str, target: Any, packages: Sequence[str]) -> None:
    """Refuse one target by its name.

    Args:
        key: Full key of its node.
        target: Dotted name.
        packages: What the user trusts.

    Raises:
        ConfigError: It is not a dotted name, or lies where a config may not look.
    """
    at = f"{key}._target_" if key else "_target_"
    slot, holds = slot_of(key)
    if not isinstance(target, str):
        raise ConfigError("a target is the dotted name of a class", key=at, hint=f"{at}={holds.example}")
    if is_dotted_path(target) and (is_allowed(target) or within(target, packages)):
        return
    hint = f"{at}={holds.example}" if slot else f"a config may name classes of {_HOLDS}"
    if not is_dotted_path(target):
        raise ConfigError(f"{target!r} is not a dotted name of a class", key=at, hint=hint)
    root = target.partition(".")[0]
    guess = _guess(target)
    if is_library(root):
        what = f"{slot} holds {holds.words}" if slot else f"a config may name {holds.words}"
        raise ConfigError(f"{target!r} is not allowed: {what}{guess}", key=at, hint=hint)
    raise ConfigError(
        f"{target!r} is not allowed: {root!r} is not a package that assay knows, or that you trust{guess}",
        key=at,
        hint=f"if it is your own: put {KEY}: [{root}] into conf/project.yaml, "
        f"or add {KEY}=[{root}] to a command that takes KEY=VALUE",
    )


def _guess(target: str) -> str:
    """What was probably meant: the same name in a place that is spelled nearly alike."""
    best, found = 0.78, ""
    for known in (*EXACT, *FUNCTIONS):
        ratio = _alike(target, known)
        if ratio > best:
            best, found = ratio, known
    parts = target.split(".")
    for place in PLACES:
        for count in range(place.count("."), place.count(".") + 2):  # a part may have been left out
            ratio = _alike(".".join(parts[:count]), place)
            if (
                best < ratio < 1
                and len(parts) > count
                and _alike(parts[count - 1], place.split(".")[-1]) > 0.7
            ):
                best, found = ratio, ".".join([place, *parts[count:]])
    return did_you_mean(found, [found], "; ") if found else ""


def _alike(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
