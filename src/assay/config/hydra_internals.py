"""All that assay uses of Hydra without Hydra promising it: loader, defaults list, config sources."""

from __future__ import annotations

import copy
import os
from collections import OrderedDict
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, final

from hydra._internal import config_loader_impl, defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra._internal.core_plugins.bash_completion import BashCompletion
from hydra._internal.defaults_list import DefaultsList, create_defaults_list
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.default_element import GroupDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, flag_override
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from assay.config.yaml_file import file_error
from assay.errors import ConfigError
from assay.paths import CONF_DIR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hydra._internal.config_repository import CachingConfigRepository
    from hydra._internal.defaults_list import Overrides
    from hydra.core.config_loader import ConfigLoader
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.default_element import InputDefault, ResultDefault

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
_MERGED: Final[OrderedDict[tuple[object, ...], DictConfig]] = OrderedDict()
"""What jobs were merged from these files, before values were set; what was asked for last is at the end."""
_MOST_MERGED: Final = 64
_HYDRAS: Final = ("pkg", "hydra.conf")
_NO_CHOICES: Final = DictConfig({})


@final
class Repository(ConfigRepository):
    """Where Hydra looks its configs up; what is shipped is not read again while its file is the same."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self.merged: dict[tuple[object, ...], DefaultsList] = {}
        """The defaults list that Hydra has made last, by what it was made of; shared by all copies."""
        self.lends = False
        """Whether configs are given out to be looked at alone, and so not as copies."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Repository:
        """The same folders: Hydra takes copies of it, and changes none."""
        del memo
        return copy.copy(self)

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Read one config."""
        found = self._load(config_path)
        return found if self.lends else copy.deepcopy(found)

    def lending(self, lends: bool) -> Repository:
        """The same folders; configs are given out as copies unless it lends them."""
        same = copy.copy(self)
        same.lends = lends
        return same

    def version(self, config_path: str) -> tuple[object, ...] | None:
        """What tells a config from all that may stand in its place another time."""
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        return None if source is None else self._version(source, config_path)

    def reaches_out(self, option: str) -> bool:
        """Whether an option can set what is not in its own group."""
        found = self._load(option)
        if found is None or found.path != f"file://{CONF_DIR}":
            return True
        others = [one for one in found.defaults_list or () if not one.is_self()]
        names = [getattr(one, "group" if isinstance(one, GroupDefault) else "path") for one in others]
        return (
            found.header.get("package") == "_global_"
            or any(name.startswith("/") for name in names)
            or any(one.package is not None or one.is_override() for one in others)
        )

    def _load(self, config_path: str) -> ConfigResult | None:
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        if source is None:
            return None
        shipped = (source.scheme(), source.path) == _HYDRAS or Path(source.path) == CONF_DIR
        if shipped:
            self._check_hidden(config_path)
        key = self._version(source, config_path) if shipped else None
        if key is not None and key in _SHIPPED:
            return _SHIPPED[key]
        try:
            found = super().load_config(config_path)
        except (YAMLError, OmegaConfBaseException, HydraException, OSError, ValueError) as error:
            raise file_error(error, file_of(source, config_path)) from error
        if key is not None:
            _SHIPPED[key] = found
        return found

    def _check_hidden(self, config_path: str) -> None:
        """Refuse a file of the user's in whose place assay's own of the same name is read."""
        for source in self.get_sources():
            if (
                source.scheme() != "file"
                or Path(source.path) == CONF_DIR
                or not source.is_config(config_path)
            ):
                continue
            group, _, name = config_path.rpartition("/")
            hint = f"rename it: {group}/my_{name}.yaml is {group}=my_{name}"
            if not group:
                hint = f"move what it sets to experiment/my_{name}.yaml, with `# @package _global_` on top"
            raise ConfigError(
                f"this file would not be read: assay's own {config_path}.yaml comes first",
                key=group,
                file=os.path.relpath(file_of(source, config_path)),
                hint=hint,
            )

    @staticmethod
    def _version(source: ConfigSource, config_path: str) -> tuple[object, ...] | None:
        key = (source.scheme(), source.provider, source.path, config_path)
        if source.scheme() == "file":
            status = file_of(source, config_path).stat()
            return (*key, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        always_there = (source.scheme(), source.path) == _HYDRAS or config_path == "hydra/config"
        return key if always_there else None


def _create_defaults_list_once(
    repo: CachingConfigRepository, config_name: str, overrides_list: list[Override], *flags: Any, **more: Any
) -> DefaultsList:
    """As Hydra's own, which is asked twice for the list of a job: to compose it, and where it was written."""
    delegate = repo.delegate
    if not isinstance(delegate, Repository):
        return create_defaults_list(repo, config_name, overrides_list, *flags, **more)
    primary = repo.load_config(config_name)
    empty = {
        one.group
        for one in (primary and primary.defaults_list) or ()
        if isinstance(one, GroupDefault) and not one.value
    }
    overrides_list = [
        replace(one, type=OverrideType.CHANGE) if one.is_add() and one.get_key_element()[1:] in empty else one
        for one in overrides_list
    ]
    typed = tuple(str(one.input_line) for one in overrides_list)
    key = (config_name, typed, flags, *sorted(more.items()))
    if key not in delegate.merged:
        delegate.lends = True  # they are merged from copies
        made = create_defaults_list(repo, config_name, overrides_list, *flags, **more)
        delegate.merged.clear()
        delegate.merged[key] = made
    return delegate.merged[key]


def _merge_once(
    loader: ConfigLoaderImpl, defaults: list[ResultDefault], repo: CachingConfigRepository
) -> DictConfig:
    """As Hydra's own, which merges forty files anew for jobs that differ in values alone."""
    delegate = repo.delegate
    if not isinstance(delegate, Repository):
        return _merge(loader, defaults, repo)
    versions = [delegate.version(str(one.config_path)) for one in defaults]
    if None in versions:
        return _merge(loader, defaults, delegate.lending(False))
    key = tuple((one.package, one.primary, version) for one, version in zip(defaults, versions, strict=True))
    if key not in _MERGED:
        _MERGED[key] = _merge_onto_hydras(loader, defaults, repo)
        if len(_MERGED) > _MOST_MERGED:
            _MERGED.popitem(last=False)
    _MERGED.move_to_end(key)
    return copy.deepcopy(_MERGED[key])


def _merge_onto_hydras(
    loader: ConfigLoaderImpl, defaults: list[ResultDefault], repo: CachingConfigRepository
) -> DictConfig:
    """As Hydra's own, which merges its own node, a third of the work, anew for each job."""
    number = sum(1 for _ in takewhile(lambda one: str(one.config_path).startswith("hydra/"), defaults))
    delegate: Any = repo.delegate
    if number in (0, len(defaults)):
        return _merge(loader, defaults, delegate.lending(False))
    config = _merge_once(loader, defaults[:number], repo)
    with flag_override(config, "no_deepcopy_set_nodes", True):
        for one in defaults[number:]:
            source = delegate.lending(bool(one.package))  # Hydra copies what it puts into a package
            try:
                config.merge_with(loader._load_single_config(one, source).config)
            except OmegaConfBaseException:
                return _merge(loader, defaults, delegate.lending(False))  # which says what is wrong where
    return config


def _interpolation_map_if_needed(
    overrides: Overrides, defaults: list[InputDefault], self_added: bool
) -> DictConfig:
    """As Hydra's own, which makes it of all choices for each file, while few files ask for one."""
    asked = any(one.is_interpolation() for one in defaults)
    return _create_interpolation_map(overrides, defaults, self_added) if asked else _NO_CHOICES


_merge = ConfigLoaderImpl._compose_config_from_defaults_list
setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", _merge_once)  # noqa: B010 - mypy
_create_interpolation_map = defaults_list._create_interpolation_map
setattr(defaults_list, "_create_interpolation_map", _interpolation_map_if_needed)  # noqa: B010 - mypy
setattr(config_loader_impl, "create_defaults_list", _create_defaults_list_once)  # noqa: B010 - mypy


def open_hydra(task: str, search_path: ConfigSearchPath) -> Hydra:
    """Hydra over some folders of configs, as its process-wide singleton."""
    opened = Hydra.create_main_hydra2(task, search_path)
    loader: Any = opened.config_loader
    loader.repository = Repository(search_path)
    return opened


def any_reaches_out(loader: ConfigLoader, options: Iterable[str]) -> bool:
    """Whether one of these options can set what is not in its own group."""
    repository: Repository = cast("Any", loader).repository
    return any(repository.reaches_out(option) for option in options)


def file_of(source: ConfigSource, name: str) -> Path:
    """The file of a config within one of Hydra's folders."""
    return Path(source.path) / ConfigSource._normalize_file_name(name)


def defaults_of(
    loader: ConfigLoader, primary: str, overrides: Sequence[str]
) -> tuple[DefaultsList, list[Override], IConfigRepository]:
    """The configs that a job is merged from, in order."""
    implementation: Any = loader
    parsed, repository = implementation._parse_overrides_and_create_caching_repo(primary, list(overrides))
    merged = _create_defaults_list_once(
        repo=repository, config_name=primary, overrides_list=parsed, prepend_hydra=True, skip_missing=False
    )
    return merged, parsed, repository


def apply_overrides(overrides: Sequence[Override], config: DictConfig) -> None:
    """Set values of a composed config as Hydra does."""
    ConfigLoaderImpl._apply_overrides_to_config(list(overrides), config)


def completions(loader: ConfigLoader, primary: str, line: str) -> list[str]:
    """What Hydra's own completion makes of a line."""
    matches: list[str] = BashCompletion(loader)._query(primary, line)
    return matches


def as_override(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    text: str = Override._get_value_element_as_str(value)
    return text
