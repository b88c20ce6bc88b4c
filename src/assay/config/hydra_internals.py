"""The private parts of Hydra that assay uses: loader, defaults list, config sources."""

from __future__ import annotations

import copy
import functools
import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from hydra import version
from hydra._internal import config_loader_impl, defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra._internal.core_plugins.bash_completion import BashCompletion
from hydra._internal.defaults_list import DefaultsList, create_defaults_list
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from assay.config.yaml_file import display_path, file_error
from assay.errors import ConfigError
from assay.paths import COMMAND_LINE, CONF_DIR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hydra._internal.defaults_list import Overrides
    from hydra.core.config_loader import ConfigLoader
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.default_element import InputDefault

__all__ = [
    "DefaultsList",
    "Hydra",
    "IConfigRepository",
    "create_config_search_path",
    "open_hydra",
]


_SHIPPED: dict[tuple[object, ...], ConfigResult | None] = {}
"""Options of assay's own and of Hydra's; read once by a process, however many jobs it composes."""
_HYDRAS = ("pkg", "hydra.conf")
_ADDED = ("+experiment=", "+debug=", "+task=", "+sweep=")
_NO_CHOICES = DictConfig({})


@final
class Repository(ConfigRepository):
    """Where Hydra looks its configs up; what is shipped is not read again while its file is the same."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Repository:
        """The same folders: Hydra takes copies of it, and changes none."""
        del memo
        return self

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Read one config."""
        if ".." in config_path.split("/"):  # as Hydra 1.4 says
            raise ConfigCompositionException("Parent traversal ('..') in Defaults List")
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        if source is None:
            return None
        key: tuple[object, ...] = (source.scheme(), source.path, config_path)
        self._check_hidden(source, config_path)
        if Path(source.path) == CONF_DIR:
            key = (*key, file_of(source, config_path).stat().st_mtime_ns)
        elif (source.scheme(), source.path) != _HYDRAS:
            return self._read(source, config_path)
        if key not in _SHIPPED:
            _SHIPPED[key] = self._read(source, config_path)
        result = copy.deepcopy(_SHIPPED[key])
        if result is not None:
            # No schema of a plugin that has the same name is merged, such as that of Hydra's Optuna sweeper.
            result.is_schema_source = True
        return result

    def _read(self, source: ConfigSource, config_path: str) -> ConfigResult | None:
        try:
            return super().load_config(config_path)
        except (YAMLError, OmegaConfBaseException, HydraException, OSError, ValueError) as error:
            raise file_error(error, file_of(source, config_path)) from error

    def _check_hidden(self, read: ConfigSource, config_path: str) -> None:
        """Refuse a file of the user's in whose place one of assay's or of the project's is read."""
        for source in self.get_sources():
            matters = source.provider == COMMAND_LINE or Path(read.path) == CONF_DIR
            if not (matters and source is not read and source.scheme() == "file"):
                continue
            if not source.is_config(config_path):
                continue
            group, _, name = config_path.rpartition("/")
            hint = f"rename it: {group}/my_{name}.yaml is {group}=my_{name}"
            if not group:
                hint = f"move what it sets to experiment/my_{name}.yaml, with `# @package _global_` on top"
            other = display_path(file_of(read, config_path))
            if Path(read.path) == CONF_DIR:
                other = f"assay's own {config_path}.yaml"
            raise ConfigError(
                f"this file would be ignored: {other} takes precedence",
                key=group,
                file=os.path.relpath(file_of(source, config_path)),
                hint=hint,
            )


def _interpolation_map_if_needed(
    overrides: Overrides, defaults: list[InputDefault], self_added: bool
) -> DictConfig:
    """As Hydra's own, which makes it of all choices for each file, while few files ask for one."""
    is_needed = any(default.is_interpolation() for default in defaults)
    made: DictConfig = _NO_CHOICES
    if is_needed:
        made = _create_interpolation_map(overrides, defaults, self_added)
    return made


_create_interpolation_map: Any = getattr(defaults_list, "_create_interpolation_map", None)
if _create_interpolation_map is not None:  # until Hydra 1.3
    setattr(defaults_list, "_create_interpolation_map", _interpolation_map_if_needed)  # noqa: B010 - mypy
_get_overrides_dirname: Any = getattr(config_loader_impl, "get_overrides_dirname", None)
_POLICY: Any = (
    None if _get_overrides_dirname else import_module("hydra._internal.execution_policy")
)


def is_whitelisted(target: str) -> bool:
    """Whether `hydra.utils.execution_whitelist` of the code around assay, if there is one, has a target."""
    if _POLICY is None:  # until Hydra 1.3
        return True
    allowed = _POLICY._get_active_execution_whitelist()
    return not isinstance(allowed, tuple) or bool(
        _POLICY._is_execution_whitelisted(target, allowed)
    )


def open_hydra(task: str, search_path: ConfigSearchPath) -> Hydra:
    """Hydra over some folders of configs, as its process-wide singleton."""
    if _get_overrides_dirname is not None:  # from 1.4 on there is one behaviour
        version.setbase("1.3")
    opened = Hydra.create_main_hydra2(task, search_path)
    loader: Any = opened.config_loader
    loader.repository = Repository(search_path)
    return opened


def file_of(source: ConfigSource, name: str) -> Path:
    """The file of a config within one of Hydra's folders."""
    return Path(source.path) / ConfigSource._normalize_file_name(name)


def config_file(repository: IConfigRepository, name: str) -> Path | None:
    """The file behind one of Hydra's config names; None for those that are not files."""
    source = next((folder for folder in repository.get_sources() if folder.is_config(name)), None)
    if source is not None and source.scheme() == "file":
        return file_of(source, name)
    return None


def strip_plus(overrides: Sequence[str]) -> list[str]:
    """Remove the plus of `+experiment=mine`, as templates for Lightning write it."""
    return [override[1:] if override.startswith(_ADDED) else override for override in overrides]


@functools.lru_cache(4096)
def parse_override(text: str) -> Override:
    """One override; each text is parsed once by a process, however many look at it."""
    (parsed,) = OverridesParser.create().parse_overrides([text])
    return parsed


def parse_overrides(texts: Iterable[str]) -> list[Override]:
    """Overrides in their order."""
    return [parse_override(text) for text in texts]


def load_defaults(
    loader: ConfigLoader, primary: str, overrides: Sequence[str]
) -> tuple[DefaultsList, list[Override], IConfigRepository]:
    """The configs that a job is merged from, in order."""
    implementation: Any = loader
    typed = strip_plus(overrides)
    parsed, repository = implementation._parse_overrides_and_create_caching_repo(primary, typed)
    merged = create_defaults_list(
        repo=repository,
        config_name=primary,
        overrides_list=parsed,
        prepend_hydra=True,
        skip_missing=False,
    )
    return merged, parsed, repository


def note_overrides(config: DictConfig, parsed: Sequence[Override]) -> None:
    """Write what Hydra notes about overrides while it composes."""
    task_overrides = [override for override in parsed if not override.is_hydra_override()]
    config.hydra.overrides.task = [override.input_line for override in task_overrides]
    if _get_overrides_dirname is not None:  # until Hydra 1.3; later on it is a resolver
        options = config.hydra.job.config.override_dirname
        config.hydra.job.override_dirname = _get_overrides_dirname(
            overrides=task_overrides, **options
        )


def apply_overrides(overrides: Sequence[Override], config: DictConfig) -> None:
    """Set values of a composed config as Hydra does."""
    ConfigLoaderImpl._apply_overrides_to_config(list(overrides), config)


def completions(loader: ConfigLoader, primary: str, line: str) -> list[str]:
    """What Hydra's own completion makes of a line."""
    return list(BashCompletion(loader)._query(primary, line))


def as_override(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    return str(Override._get_value_element_as_str(value))
