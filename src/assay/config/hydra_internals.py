"""The private parts of Hydra that assay uses: loader, defaults list, config sources."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra._internal.core_plugins.bash_completion import BashCompletion
from hydra._internal.defaults_list import DefaultsList, create_defaults_list
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from assay.config.yaml_file import check_aliases, file_error
from assay.errors import ConfigError
from assay.paths import CONF_DIR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hydra._internal.defaults_list import Overrides
    from hydra.core.config_loader import ConfigLoader
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.default_element import InputDefault

__all__ = [
    "DefaultsList",
    "Hydra",
    "IConfigRepository",
    "create_config_search_path",
    "get_overrides_dirname",
    "open_hydra",
]


_SHIPPED: Final[dict[tuple[object, ...], ConfigResult | None]] = {}
"""Options of assay's own and of Hydra's; read once by a process, however many jobs it composes."""
_HYDRAS: Final = ("pkg", "hydra.conf")
_ADDED: Final = ("+experiment=", "+debug=", "+task=", "+sweep=")
_NO_CHOICES: Final = DictConfig({})


@final
class Repository(ConfigRepository):
    """Where Hydra looks its configs up; what is shipped is not read again while its file is the same."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Repository:
        """The same folders: Hydra takes copies of it, and changes none."""
        del memo
        return self

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Read one config."""
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        if source is None:
            return None
        key: tuple[object, ...] = (source.scheme(), source.path, config_path)
        if Path(source.path) == CONF_DIR:
            self._check_hidden(config_path)
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
            if source.scheme() == "file":
                check_aliases(file_of(source, config_path))
            return super().load_config(config_path)
        except (YAMLError, OmegaConfBaseException, HydraException, OSError, ValueError) as error:
            raise file_error(error, file_of(source, config_path)) from error

    def _check_hidden(self, config_path: str) -> None:
        """Refuse a file of the user's in whose place assay's own of the same name is read."""
        for source in self.get_sources():
            is_users = source.scheme() == "file" and Path(source.path) != CONF_DIR
            if not (is_users and source.is_config(config_path)):
                continue
            group, _, name = config_path.rpartition("/")
            hint = f"rename it: {group}/my_{name}.yaml is {group}=my_{name}"
            if not group:
                hint = f"move what it sets to experiment/my_{name}.yaml, with `# @package _global_` on top"
            raise ConfigError(
                f"this file would be ignored: assay's own {config_path}.yaml takes precedence",
                key=group,
                file=os.path.relpath(file_of(source, config_path)),
                hint=hint,
            )


def _interpolation_map_if_needed(
    overrides: Overrides, defaults: list[InputDefault], self_added: bool
) -> DictConfig:
    """As Hydra's own, which makes it of all choices for each file, while few files ask for one."""
    is_needed = any(default.is_interpolation() for default in defaults)
    return _create_interpolation_map(overrides, defaults, self_added) if is_needed else _NO_CHOICES


_create_interpolation_map = defaults_list._create_interpolation_map
setattr(defaults_list, "_create_interpolation_map", _interpolation_map_if_needed)  # noqa: B010 - mypy


def open_hydra(task: str, search_path: ConfigSearchPath) -> Hydra:
    """Hydra over some folders of configs, as its process-wide singleton."""
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
    return file_of(source, name) if source is not None and source.scheme() == "file" else None


def strip_plus(overrides: Sequence[str]) -> list[str]:
    """Remove the plus of `+experiment=mine`, as templates for Lightning write it."""
    return [override[1:] if override.startswith(_ADDED) else override for override in overrides]


def load_defaults(
    loader: ConfigLoader, primary: str, overrides: Sequence[str]
) -> tuple[DefaultsList, list[Override], IConfigRepository]:
    """The configs that a job is merged from, in order."""
    implementation: Any = loader
    typed = strip_plus(overrides)
    parsed, repository = implementation._parse_overrides_and_create_caching_repo(primary, typed)
    merged = create_defaults_list(
        repo=repository, config_name=primary, overrides_list=parsed, prepend_hydra=True, skip_missing=False
    )
    return merged, parsed, repository


def apply_overrides(overrides: Sequence[Override], config: DictConfig) -> None:
    """Set values of a composed config as Hydra does."""
    ConfigLoaderImpl._apply_overrides_to_config(list(overrides), config)


def completions(loader: ConfigLoader, primary: str, line: str) -> list[str]:
    """What Hydra's own completion makes of a line."""
    return list(BashCompletion(loader)._query(primary, line))


def as_override(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    return str(Override._get_value_element_as_str(value))
