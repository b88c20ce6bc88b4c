"""What `assay explain` prints: a value, who set it, and what that overrode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.text import Text

from assay.compose.compose import compose_with, implied_overrides, loader
from assay.compose.origin import plain, replayed
from assay.config.did_you_mean import did_you_mean
from assay.config.source_location import shortened, split
from assay.config.tree import walk
from assay.errors import ConfigError
from assay.terminal import print_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from omegaconf import DictConfig

    from assay.compose.origin import Choice, Origins
    from assay.config.source_location import Setting
    from assay.config.tree import Entry
    from assay.terminal import Console

_AWAITED = "known once the data is read"
_Entries = dict[tuple[str, ...], "Entry"]


@final
@dataclass(frozen=True)
class Key:
    """A key below the one that is explained.

    Attributes:
        key: Full key.
        value: As it is written in YAML.
        where: `conf/optimizer/adamw.yaml:3`, `command line`, or what else set it; empty where unknown.
        overridden: What counts in its place, and where that was set; empty where this one counts.
    """

    key: str
    value: str
    where: str
    overridden: str = ""


@final
@dataclass(frozen=True)
class Explanation:
    """A value, a node or a group, and where it comes from.

    Attributes:
        key: Full key, or the group.
        value: As it is written in YAML; the option of a group; empty for a node.
        remark: What an interpolation comes to, after `→`; that a value must be given or was taken away.
        set_by: Every place that sets it, the oldest first: the last one counts.
        part_of: The choices of groups that brought the file of the last place here.
        keys: All below a node, or that a group's option sets.
    """

    key: str
    value: str = ""
    remark: str = ""
    set_by: Sequence[Setting] = ()
    part_of: Sequence[Choice] = ()
    keys: Sequence[Key] = ()


def explain(key: str, overrides: Sequence[str] = (), config_dir: Path | None = None) -> Explanation:
    """A value, or a group with all its keys, and where each comes from."""
    with loader(config_dir) as hydra:
        config = compose_with(hydra, overrides)
        found = replayed(hydra, overrides, implied_overrides(config, overrides))
    return explained(key, config, found)


def explained(key: str, config: DictConfig, found: Origins) -> Explanation:
    """As `explain`, of a job that is composed already."""
    key = key.rstrip("=./")
    entries = {split(entry.key): entry for entry in walk(config)}
    entry, choice = entries.get(split(key)), found.choice_of(key)
    if choice is not None:
        option = choice.option.replace(",", ", ") or "none"
        rows = _rows_of_choice(choice, found, entries)
        return Explanation(choice.group, option, set_by=choice.settings, keys=rows)
    if entry is not None and not _is_one_value(entry):
        return Explanation(entry.key, keys=_rows_below(split(key), found, entries))
    chain = tuple(found.chain(key))
    if entry is None and not (chain and not chain[-1].text):
        raise _unknown(key, found, entries)
    path = chain[-1].path if chain else None
    choices = tuple(one for one in found.choices.values() if path is not None and one.brought(path))
    if entry is None:
        return Explanation(key, "", "was taken away", chain, choices)
    return Explanation(entry.key, *_raw_and_resolved(entry, chain), chain, choices)


def say(console: Console, found: Explanation) -> None:
    """Print an explanation."""
    line = Text(found.key, style="bold")
    if found.value:
        line.append(" = ", style="not bold dim").append(found.value, style="not bold cyan")
    if found.remark:
        line.append(f"  {found.remark}", style="not bold")
    console.print(line)
    # The newest first: what counts, then what it overrode.
    print_rows(
        console,
        [
            ("over" if number else "set by", one.where, one.override or shortened(one.text))
            for number, one in enumerate(reversed(found.set_by))
        ],
    )
    for choice in found.part_of:
        by = choice.settings[-1].where
        console.print(f"  with    {choice.group}={choice.option}, chosen by {by}", markup=False)
    if found.keys:
        console.print()
        over = [f"overridden: {one.overridden}" if one.overridden else "" for one in found.keys]
        rows = [(one.key, shortened(one.value), one.where) for one in found.keys]
        print_rows(console, [(*row, note) for row, note in zip(rows, over, strict=True)])


def _is_one_value(entry: Entry) -> bool:
    """Whether it is shown in one line: a plain value, a list of such, or an empty mapping."""
    if not entry.is_container:
        return True
    nested = [other for other in walk(entry.node) if other.is_container]
    return not len(entry.node) or (OmegaConf.is_list(entry.node) and not nested)


def _raw_and_resolved(entry: Entry, chain: Sequence[Setting]) -> tuple[str, str]:
    if entry.is_missing:
        return "???", f"must be given: {entry.key}=…"
    if entry.is_container:
        return plain(OmegaConf.to_container(entry.node, resolve=False)), ""
    raw = plain(entry.raw)
    if entry.is_interpolation:
        return str(entry.raw), f"→ {_resolved(entry)}"
    written = chain[-1].text if chain else raw
    return (written, f"→ {raw}") if "${" in written else (raw, "")


def _resolved(entry: Entry) -> str:
    try:
        value: Any = entry.parent[entry.name]
    except OmegaConfBaseException:
        return _AWAITED if "spec." in str(entry.raw) else "cannot be resolved"
    return shortened(plain(OmegaConf.to_container(value) if OmegaConf.is_config(value) else value))


def _rows_of_choice(choice: Choice, found: Origins, entries: _Entries) -> list[Key]:
    package = split(choice.package)
    if package and package == split(choice.group.replace("/", ".")):
        return _rows_below(package, found, entries)
    # A fragment of another node, such as `device` in the trainer, or of the whole config: what its file sets.
    rows: list[Key] = []
    for setting in found.settings_in(f"{choice.group}/{choice.option}"):
        last = found.chain(setting.key)[-1]
        over = f"{last.override or last.text}, {last.where}" if last != setting else ""
        rows.append(Key(setting.key, setting.text, setting.where, over))
    return rows


def _rows_below(node: tuple[str, ...], found: Origins, entries: _Entries) -> list[Key]:
    rows: list[Key] = []
    whole = {key for key, entry in entries.items() if _is_one_value(entry)}
    for key, entry in entries.items():
        if key[: len(node)] == node and key in whole and key[:-1] not in whole:
            chain = found.chain(entry.key)
            value, _ = _raw_and_resolved(entry, chain)
            rows.append(Key(entry.key, value, chain[-1].where if chain else ""))
    return rows


def _unknown(key: str, found: Origins, entries: Mapping[tuple[str, ...], Entry]) -> ConfigError:
    if split(key)[:1] == ("spec",):
        return ConfigError(_AWAITED, key=key, hint="a run's config.yaml has it")
    known = [entry.key for entry in entries.values() if split(entry.key)[:1] != ("hydra",)]
    return ConfigError(
        f"there is no such key or group{did_you_mean(key, [*known, *found.choices], '; ')}",
        key=key,
        hint="`assay train --cfg` shows every key, `assay configs` every group",
    )
