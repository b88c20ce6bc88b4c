"""What several verbs share: their arguments, the help on overrides, and a first look at a job."""

from __future__ import annotations

import sys
import textwrap
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.paths import CONF_DIR
from assay.terminal import Console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omegaconf import DictConfig

_OVERRIDES = """\b
Overrides, in Hydra's grammar:
  data=wine model=mlp       an option of a group; see `assay configs data`
  optimizer.lr=0.01         a value; `assay train --cfg` shows every key
  callbacks=[default,ema]   several options (callbacks and logger)
  +model.new=1              a new key;  ~scheduler leaves one out

\b
Groups:
{groups}

\b
Examples:
  assay train data=breast_cancer optimizer=sgd optimizer.lr=0.1
  assay train experiment=digits_longtail device=gpu precision=bf16
  assay train -m optimizer=sgd,adamw seed=1,2,3
"""

Overrides = Annotated[list[str] | None, typer.Argument(metavar="GROUP=OPTION|KEY=VALUE", hidden=True)]
ConfigDir = Annotated[
    Path | None,
    typer.Option("--config-dir", "-cd", metavar="DIR", help="Your own config groups.  [default: ./conf]"),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def overrides_help() -> str:
    """How overrides are written, and the names of the groups: wrapped by hand, because the lines are kept."""
    names = sorted({path.parent.name for path in CONF_DIR.glob("*/*.yaml")})
    groups = textwrap.fill("  ".join(names), 76, initial_indent="  ", subsequent_indent="  ")
    return _OVERRIDES.format(groups=groups)


@contextmanager
def loading() -> Iterator[None]:
    """Say what is being waited for, on a terminal, in a line that goes again."""
    with Console(stderr=True).status("loading torch and Lightning") if sys.stderr.isatty() else nullcontext():
        yield


def checked_names(typed: list[str], config_dir: Path | None) -> DictConfig:
    """The job, checked as far as can be without torch: a mistyped word costs no wait."""
    from assay.check.job import check_job
    from assay.compose.compose import compose, job_config
    from assay.config.unread_keys import check_single
    from assay.record.run_directory import refuse_existing

    job = compose(typed, config_dir)
    check_single(typed)
    check_job(job_config(job))
    refuse_existing(Path(job.run_dir))
    if job.get("enforce_clean_git"):
        from assay.record.provenance import check_clean

        check_clean(Path.cwd())
    return job
