"""What may be different in a run that goes on, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from assay.compose.fused import settle_fused
from assay.config.did_you_mean import did_you_mean
from assay.config.tree import walk
from assay.config.unread_keys import check_read_by_run
from assay.config.yaml_file import load_yaml
from assay.errors import ConfigError, first_line
from assay.paths import CONF_DIR
from assay.run.saved_config import as_written, interpolations
from assay.targets.trust import KEY as TRUSTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hydra.core.override_parser.types import Override

_FIXED: Final = (
    "model",
    "data",
    "seed",
    "module",
    "param_groups",
    "finetune",
    "metrics",
    "spec",
    "run_dir",
    "name",
    TRUSTED,
)
_FREE: Final = ("data.num_workers", "data.pin_memory", "data.persistent_workers", "data.prefetch_factor")
_LENGTH: Final = ("max_epochs", "max_steps", "max_time", "limit_train_batches", "accumulate_grad_batches")
_OF_LENGTH: Final = ("spec.total_steps", "spec.steps_per_epoch", *(f"trainer.{name}" for name in _LENGTH))


@final
@dataclass(frozen=True)
class Change:
    """A job to go on with.

    Attributes:
        config: With the references of the run's own config, and the overrides.
        changed: Old and new value of each key that is different; new is None for what follows from others.
        notes: What the user should know of the outcome.
        stop_holds: Whether what stopped the run early is as it was.
    """

    config: DictConfig
    changed: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    stop_holds: bool = True


def change(run_dir: Path, config: DictConfig, written: Mapping[str, str], overrides: Sequence[str]) -> Change:
    """The job of a run, with what is to be different from here on.

    Args:
        run_dir: Where the run is now.
        config: Its resolved config; left as it is.
        written: What was written as `${…}` in it.
        overrides: As typed.

    Raises:
        ConfigError: An override cannot be read, or not be applied to a run that has begun.
    """
    config = as_written(config, written, references_only=True)
    with open_dict(config):
        config.run_dir = str(run_dir)
    before = _values(config)
    parsed = parsed_overrides(overrides, "one run", "trainer.max_epochs=20")
    for override in parsed:
        _apply(config, override)
    settle_fused(config)
    after = _values(config)
    with open_dict(config):
        config.pop("spec", None)  # the data tells it anew
    check_read_by_run(config, parsed)
    OmegaConf.set_struct(config, True)
    changed = {
        key: (before.get(key), after.get(key))
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    }
    dependent = _dependent(config, changed)
    notes = _notes(changed, dependent)
    changed |= {key: (before.get(key), None) for key in dependent if key not in changed}
    stopping = [key for key in changed if "EarlyStopping" in str(_target(config, key))]
    return Change(config, changed, notes, stop_holds=not stopping)


def parsed_overrides(overrides: Sequence[str], what: str, example: str) -> list[Override]:
    """What was typed for a run that is there, without what is trusted.

    Args:
        overrides: As typed.
        what: They are for, such as `one run`.
        example: Of one, for the message.

    Raises:
        ConfigError: One cannot be read, or has several values.
    """
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
            "another option cannot be chosen in a run that has begun", key=key, hint=f"{key}.KEY=VALUE"
        )
    root = key.partition(".")[0].partition("[")[0]
    fixed = root in _FIXED and key not in _FREE
    if fixed or key.endswith("_target_"):
        raise ConfigError(
            "this is what the run is made of; it cannot be changed in a run that has begun",
            key=key,
            hint="assay train with it, in a run of its own",
        )
    set_value(config, override, within="")


def set_value(config: DictConfig, override: Override, *, within: str) -> None:
    """Set, add or delete a key of a run's config.

    Args:
        config: Of the run; changed.
        override: As it was typed, with a single value.
        within: The node whose keys are offered where there is none of that name; empty: all.

    Raises:
        ConfigError: There is no such key, or it cannot be set.
    """
    key, missing = override.key_or_group, object()
    try:
        absent = OmegaConf.select(config, key, default=missing) is missing
    except OmegaConfBaseException:  # it is there, and asks for the data, which was not read yet
        absent = False
    if absent and not override.is_add():
        keys = [entry.key for entry in walk(config[within] if within else config, within)]
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
    """Put an option of group `device` into a job.

    Args:
        config: The job; changed in place.
        name: Of the option.

    Raises:
        ConfigError: There is none of that name.
    """
    path = CONF_DIR / "device" / f"{name}.yaml"
    if not path.is_file():
        names = sorted(path.stem for path in (CONF_DIR / "device").glob("*.yaml"))
        raise ConfigError(f"there is no option {name!r}", key="device", hint=f"one of {', '.join(names)}")
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
                    one.key: one.parent[one.name] for one in walk(value, entry.key) if not one.is_container
                }
            else:
                found[entry.key] = value
    return found


def _dependent(config: DictConfig, changed: Mapping[str, Any]) -> dict[str, str]:
    """Keys that mean something else now that the run is longer, and why."""
    if not any(key.removeprefix("trainer.") in _LENGTH for key in changed):
        return {}
    found = {
        key: text
        for key, text in interpolations(config).items()
        if any(f"${{{name}}}" in text for name in _OF_LENGTH)
    }
    for name, node in (config.get("callbacks") or {}).items():
        if node is not None and node.get("start_fraction") is not None and node.get("start_epoch") is None:
            found[f"callbacks.{name}.start_fraction"] = "a share of trainer.max_epochs"
    return found


def _notes(changed: Mapping[str, tuple[Any, Any]], dependent: Mapping[str, str]) -> list[str]:
    notes = [f"{key}: {old} until here, {new} from here on" for key, (old, new) in changed.items()]
    if dependent:
        keys = ", ".join(f"{key} ({text})" for key, text in dependent.items())
        notes.append(
            f"the length of the run decides {keys}: what comes out is not what a run of the new length would "
            "have come to"
        )
    return notes


def _target(config: DictConfig, key: str) -> Any:
    names = key.split(".")
    return OmegaConf.select(config, ".".join([*names[:2], "_target_"])) if len(names) > 2 else None
