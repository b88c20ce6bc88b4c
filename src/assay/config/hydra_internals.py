"""All that assay uses of Hydra without Hydra promising it: loader, defaults list, config sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import IConfigRepository
from hydra._internal.core_plugins.bash_completion import BashCompletion
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.defaults_list import DefaultsList, create_defaults_list
from hydra._internal.hydra import Hydra
from hydra._internal.sources_registry import SourcesRegistry
from hydra._internal.utils import create_config_search_path
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig

__all__ = [
    "DefaultsList",
    "FileConfigSource",
    "Hydra",
    "IConfigRepository",
    "create_config_search_path",
    "get_overrides_dirname",
]


def file_of(source: ConfigSource, name: str) -> Path:
    """The file of a config within one of Hydra's folders.

    Args:
        source: One of Hydra's folders.
        name: Such as `optimizer/adamw`.
    """
    return Path(source.path) / ConfigSource._normalize_file_name(name)


def check_header(text: str) -> None:
    """Read the `# @package` line of a config as Hydra does.

    Args:
        text: Its beginning.

    Raises:
        ValueError: Hydra cannot read it.
    """
    ConfigSource._get_header_dict(text)


def read_folders_by(reader: type[FileConfigSource]) -> None:
    """Have Hydra read its folders of configs through another class.

    Args:
        reader: The class.
    """
    SourcesRegistry.instance().types["file"] = reader


def defaults_of(
    loader: ConfigLoader, primary: str, overrides: Sequence[str]
) -> tuple[DefaultsList, list[Override], IConfigRepository]:
    """The configs that a job is merged from, in order.

    Args:
        loader: Hydra's.
        primary: Name of the primary config.
        overrides: As typed.

    Returns:
        The defaults list, the parsed overrides, and where the files are.
    """
    implementation: Any = loader
    parsed, repository = implementation._parse_overrides_and_create_caching_repo(primary, list(overrides))
    merged = create_defaults_list(
        repo=repository, config_name=primary, overrides_list=parsed, prepend_hydra=True, skip_missing=False
    )
    return merged, parsed, repository


def apply_overrides(overrides: Sequence[Override], config: DictConfig) -> None:
    """Set values of a composed config as Hydra does.

    Args:
        overrides: Parsed.
        config: Changed in place.

    Raises:
        ConfigCompositionException: A key is not there, or a value does not fit.
    """
    ConfigLoaderImpl._apply_overrides_to_config(list(overrides), config)


def completions(loader: ConfigLoader, primary: str, line: str) -> list[str]:
    """What Hydra's own completion makes of a line.

    Args:
        loader: Hydra's.
        primary: Name of the primary config.
        line: As typed so far.
    """
    matches: list[str] = BashCompletion(loader)._query(primary, line)
    return matches


def as_override(value: Any) -> str:
    """A value in the grammar of Hydra's overrides.

    Args:
        value: Containers of numbers, text and None.
    """
    text: str = Override._get_value_element_as_str(value)
    return text
