"""What is typed for `assay eval`: other data for a run's model, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from omegaconf import DictConfig, OmegaConf, open_dict

from assay.compose.compose import compose, job_config
from assay.config.unread_keys import OUR_DATA
from assay.errors import ConfigError
from assay.run.resume.resume_overrides import choose_device, parsed_overrides, set_value
from assay.targets.allowed_targets import check_targets
from assay.targets.trust import KEY as TRUSTED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


_LOADING: Final = ("eval_batch_size", "num_workers", "pin_memory", "persistent_workers", "prefetch_factor")


def change_data(config: DictConfig, overrides: Sequence[str], config_dir: Path | None = None) -> bool:
    """Put other data, or another device, into a run's config.

    Args:
        config: From `assay.run.saved_config.read_config`; changed in place.
        overrides: As typed.
        config_dir: The user's folder of config groups.

    Returns:
        Whether there is other data.

    Raises:
        ConfigError: An override cannot be read, or would change what was trained, or nothing.
    """
    parsed = parsed_overrides(overrides, "one evaluation", "data.source.path=FILE")
    given = {one.key_or_group: one for one in parsed}
    ours = OmegaConf.select(config, "data._target_") == OUR_DATA
    for key in given:
        _check(key, ours=ours)
    if (device := given.pop("device", None)) is not None:
        choose_device(config, str(device.value()))
    if "data" in given:
        _choose(config, list(overrides), config_dir, ours=ours)
        check_targets(config)
        return True
    for one in given.values():
        set_value(config, one, within="data")
    check_targets(config)
    _check_tested(config, given)
    return any(key.partition(".")[2].partition(".")[0] not in _LOADING for key in given)


def _check(key: str, *, ours: bool) -> None:
    root, _, rest = key.partition(".")
    name = rest.partition(".")[0]
    fine = key in ("data", "device") or (
        root == "data" and (not ours or name == "source" or rest in _LOADING) and "_target_" not in key
    )
    if not fine:
        raise ConfigError(
            "this is what the run is made of, or nothing that an evaluation reads",
            key=key,
            hint="data=OPTION, data.source.KEY=VALUE or device=OPTION",
        )


def _choose(config: DictConfig, overrides: Sequence[str], config_dir: Path | None, *, ours: bool) -> None:
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


def _check_tested(config: DictConfig, given: dict[str, Any]) -> None:
    """Refuse other training samples where the test subset is a file of its own, which alone would be read."""
    for key in given:
        parent, _, name = key.rpartition(".")
        other = f"{parent}.test_{name}"
        value = OmegaConf.select(config, other) if parent == "data.source" else None
        if value is not None and other not in given:
            raise ConfigError(
                f"this would not be tested: the run's test subset is {other}={value}",
                key=key,
                hint=f"{other}=…, or {other}=null as well",
            )
