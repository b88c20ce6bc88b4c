"""A task of the user's own: judged by its name, and imported from a package that they trust."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean
from assay.config.unread_keys import OUR_DATA
from assay.errors import ConfigError
from assay.paths import project_conf
from assay.quoting import is_dotted_path
from assay.targets.allowed_targets import is_allowed, targets, trusted_in
from assay.targets.resolve import called, own_class
from assay.targets.trust import KEY, is_library, project_packages, within
from assay.task.task import Task
from assay.task.task_of import TASKS, check_interface, known_task, remember_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from omegaconf import DictConfig


def check_tasks(config: DictConfig) -> None:
    """Refuse by its name alone a task that is neither assay's nor in a package that the user trusts."""
    for key, name in _named(config):
        check_task(key, name, trusted_in(config))


def import_tasks(config: DictConfig) -> None:
    """Let `assay.task.task_of.task_of` know the task of the user's own that a job names."""
    for key, name in _named(config):
        import_task(key, name, trusted_in(config))


def check_task(key: str, name: str, packages: Sequence[str]) -> None:
    """Refuse one task by its name."""
    if name in TASKS or (is_dotted_path(name) and within(name, packages)):
        return
    root = name.partition(".")[0]
    if not is_dotted_path(name) or is_library(root):
        raise ConfigError(
            f"{name!r} is not a task{did_you_mean(name, TASKS, '; ')}",
            key=key,
            hint=f"{', '.join(TASKS)}, or the dotted path of one of your own",
        )
    raise ConfigError(
        f"{name!r} is a task of a package that is not trusted here",
        key=key,
        hint=f"if it is your own: put {KEY}: [{root}] into conf/project.yaml"
        + (f", or type {KEY}=[{root}]" if key != "spec.task" else ""),  # a run's, which a report is made of
    )


def import_task(key: str, name: str, packages: Sequence[str]) -> Task:
    """One task; from then on `assay.task.task_of.task_of` knows it."""
    check_task(key, name, packages)
    if (known := known_task(name)) is not None:
        return known
    kind = own_class(key, name, packages, Task)  # type: ignore[type-abstract]  # only its subclasses are made
    if kind.name != name:
        raise ConfigError(
            f"{name!r} calls itself {kind.name!r}",
            key=key,
            hint=f"{key}={kind.name}" if "." in kind.name else f"leave `name` out of {kind.__name__}",
        )
    task: Task = called(key, kind)
    check_interface(task, key)
    remember_task(task)
    return task


def strangers(config: DictConfig) -> list[str]:
    """Packages that a job names, for its classes or its task, and that the user has not said to trust."""
    named = [*targets(config), *((key, name) for key, name in _named(config) if name not in TASKS)]
    names = {name for _, name in named if isinstance(name, str) and is_dotted_path(name)}
    trusted = (*trusted_in(config), *project_packages(project_conf()))
    roots = {name.partition(".")[0] for name in names if not is_allowed(name) and not within(name, trusted)}
    return sorted(root for root in roots if not is_library(root))


def import_trusted(names: Iterable[str]) -> None:
    """Let `task_of` know the tasks in packages that the project in the current directory trusts."""
    packages = project_packages(project_conf())
    for name in {*names}:
        if within(name, packages):
            import_task("spec.task", name, packages)


def _named(config: DictConfig) -> Iterator[tuple[str, str]]:
    """Full key and value of each place where a job names a task."""
    ours = OmegaConf.select(config, "data._target_") == OUR_DATA
    for key in (*(("data.task", "data.source.task", "data.spec.task") if ours else ()), "spec.task"):
        try:
            name: Any = OmegaConf.select(config, key)
        except OmegaConfBaseException:  # which is said where values are looked at
            continue
        if isinstance(name, str) and name != "auto":
            yield key, name
