"""Walking over a config without resolving anything in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from omegaconf import DictConfig, ListConfig

if TYPE_CHECKING:
    from collections.abc import Iterator


_CONTAINERS: Final = (DictConfig, ListConfig)


@final
class Entry(NamedTuple):
    """One place in a config.

    Attributes:
        key: Full key, such as `optimizer.betas[0]`.
        parent: The mapping or list it is in.
        name: Its name or index there.
        node: What is there, as it is written.
    """

    key: str
    parent: Any
    name: Any
    node: Any

    @property
    def is_container(self) -> bool:
        """A mapping or list written in place; not null, not `???`, no interpolation."""
        # By type: isinstance asks an ABC, which takes ten times as long, and a job has hundreds of places.
        return type(self.node) in _CONTAINERS and not (
            self.node._is_none() or self.is_missing or self.is_interpolation
        )

    @property
    def is_missing(self) -> bool:
        """Whether it says `???`."""
        return bool(self.node._is_missing())

    @property
    def is_interpolation(self) -> bool:
        """Whether it says `${…}`."""
        return bool(self.node._is_interpolation())


def walk(config: DictConfig | ListConfig, prefix: str = "") -> Iterator[Entry]:
    """Every place in a config, a container before what is in it.

    Args:
        config: A mapping or list.
        prefix: Full key of `config`.

    >>> from omegaconf import OmegaConf
    >>> [entry.key for entry in walk(OmegaConf.create({"a": {"b": [1, 2]}, "c": "${a}"}))]
    ['a', 'a.b', 'a.b[0]', 'a.b[1]', 'c']
    """
    names: Any = config if isinstance(config, DictConfig) else range(len(config))
    for name in names:
        if isinstance(config, ListConfig):
            key = f"{prefix}[{name}]"
        else:
            key = f"{prefix}.{name}" if prefix else str(name)
        entry = Entry(key, config, name, config._get_node(name))
        yield entry
        if entry.is_container:
            yield from walk(entry.node, key)
