"""What a config may ask of Hydra itself: classes, loggers and environment variables in its `hydra` node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from omegaconf import DictConfig, OmegaConf

from assay.config.tree import follow
from assay.errors import ConfigError
from assay.paths import CONF_DIR
from assay.quoting import is_dotted_path
from assay.targets.trust import KEY, is_library, within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.config.tree import Entry

_CALLED = ("launcher", "sweeper", "callbacks")
HYDRAS_OWN: Final = {
    "hydra._internal.core_plugins.basic_launcher.BasicLauncher": "assay.sweep.launcher.serial.SerialLauncher",
    "hydra._internal.core_plugins.basic_sweeper.BasicSweeper": "assay.sweep.search.grid.GridSearch",
}
"""Hydra's own options, called `basic`, and what does the same here."""
SWEEP_PARTS: Final = {
    "hydra.launcher": (
        "assay.sweep.launcher.local.LocalLauncher",
        "assay.sweep.launcher.ray.RayLauncher",
        "assay.sweep.launcher.serial.SerialLauncher",
        "assay.sweep.launcher.slurm.SlurmLauncher",
    ),
    "hydra.sweeper": (
        "assay.sweep.search.grid.GridSearch",
        "assay.sweep.search.optuna.OptunaSearch",
        "assay.sweep.search.random.RandomSearch",
    ),
}
"""All of assay's that a launcher or sweeper may be; what lies beside them starts, ends and removes things."""
_OWN_TOO: Final = ("hydra.launcher._target_", "hydra.sweeper._target_", "hydra.sweeper.sampler._target_")
"""What may also be a class of the user's own."""
_CALLBACKS = (
    "hydra.experimental.callbacks.LogJobReturnCallback",
    "hydra.experimental.callbacks.PickleJobInfoCallback",
)
_SEARCH = re.compile(r"optuna\.(samplers|pruners)\.[A-Z]\w*", re.ASCII)
_HANDLERS = (
    "logging.NullHandler",
    "logging.StreamHandler",
    "logging.FileHandler",
    "logging.handlers.RotatingFileHandler",
    "logging.handlers.TimedRotatingFileHandler",
)
_FACTORIES = ("colorlog.ColoredFormatter",)
_STREAMS = ("ext://sys.stdout", "ext://sys.stderr")
_LOG_FILE = re.compile(
    r"(\$\{hydra\.runtime\.output_dir\}/)?(\$\{hydra\.job\.name\}|[\w-]+)(\.\w+)?", re.ASCII
)
_JOB_NAME = re.compile(r"\w[\w-]*", re.ASCII)
"""A name in the run's directory: a logger's format could put any text into any other file."""
_VARIABLES = re.compile(
    r"(OMP|MKL|OPENBLAS|NUMEXPR)_\w+|CUDA_(VISIBLE_DEVICES|LAUNCH_BLOCKING|DEVICE_ORDER)|CUBLAS_WORKSPACE_CONFIG|"
    r"PYTORCH_(CUDA_|HIP_|MPS_)?(ALLOC_CONF|ENABLE_MPS_FALLBACK|HIGH_WATERMARK_RATIO)|TOKENIZERS_PARALLELISM|"
    r"NCCL_(DEBUG|P2P_DISABLE|IB_DISABLE|SOCKET_IFNAME)|GLOO_SOCKET_IFNAME|MASTER_(ADDR|PORT)|"
    r"WANDB_(MODE|PROJECT|ENTITY|NAME|SILENT)|ASSAY_DATA",
    re.ASCII,
)
"""Others choose libraries, compilers and interpreters."""


def check_hydra(node: DictConfig, packages: Sequence[str] = ()) -> None:
    """Refuse a `hydra` node that would have Hydra call, import or set anything out of the way."""
    for part in _CALLED:
        for entry, _ in _entries(node, part):
            if entry.name == "_target_":
                _check_target(entry, part, packages)
    name = OmegaConf.select(node, "job.name")
    if name is not None and not _JOB_NAME.fullmatch(str(name)):
        raise ConfigError(f"{name!r} is not a plain name", key="hydra.job.name", hint="hydra.job.name=assay")
    for part in ("job_logging", "hydra_logging"):
        for entry, value in _entries(node, part):
            _check_logging(entry, value)
    for name in OmegaConf.select(node, "job.env_set") or {}:
        if not _VARIABLES.fullmatch(str(name)):
            raise ConfigError(
                "a config must not set this environment variable",
                key=f"hydra.job.env_set.{name}",
                hint=f"set it in the shell: export {name}=…",
            )


def _entries(node: DictConfig, part: str) -> Iterator[tuple[Entry, Any]]:
    inner = OmegaConf.select(node, part)
    if isinstance(inner, DictConfig):
        yield from follow(inner, f"hydra.{part}")


def _check_target(entry: Entry, part: str, packages: Sequence[str]) -> None:
    target = entry.raw
    text = target if isinstance(target, str) else ""
    if part == "callbacks":
        fine = text in _CALLBACKS
    elif entry.key == f"hydra.{part}._target_":
        fine = text in HYDRAS_OWN or text in SWEEP_PARTS[f"hydra.{part}"]
    else:
        fine = _SEARCH.fullmatch(text) is not None
    can_be_own = entry.key in _OWN_TOO and is_dotted_path(text)
    if can_be_own and within(text, packages):
        return
    if not fine and can_be_own and not is_library(text):
        root = text.partition(".")[0]
        raise ConfigError(
            f"{target!r} lies in a package that is not trusted",
            key=entry.key,
            hint=f"if it is your own: {KEY}=[{root}], or put that into conf/project.yaml",
        )
    if not fine and target is not None:
        place = entry.key.removesuffix("._target_")
        group = place.replace(".", "/")
        names = sorted(path.stem for path in CONF_DIR.joinpath(group).glob("[!_]*.yaml"))
        raise ConfigError(
            f"{target!r} is not something that Hydra may call here",
            key=entry.key,
            hint=f"{group}={' or '.join(names)}" if names else f"~{place}",
        )


def _check_logging(entry: Entry, resolved: Any) -> None:
    name, value = str(entry.name), entry.raw
    text = value if isinstance(value, str) else ""
    fine = {
        "class": text in _HANDLERS,
        "()": text in _FACTORIES,
        "filename": _LOG_FILE.fullmatch(text) is not None,
        ".": False,
    }.get(name, True)
    if "://" in text:
        fine = text in _STREAMS
    elif "${" in text and name != "filename":
        fine = fine and not (isinstance(resolved, str) and "://" in resolved)
    if not fine:
        shown = text or f"{name!r}"
        raise ConfigError(
            f"{shown} is not something that a logging config may hold here",
            key=entry.key,
            hint="hydra/job_logging=none hydra/hydra_logging=none; every run writes its log.txt",
        )
