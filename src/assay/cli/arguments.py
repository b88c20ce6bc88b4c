"""What several verbs share: their arguments, the help on overrides, and what a wait is for."""

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
    typer.Option(
        "--config-dir",
        "-cd",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Your own config groups.  [default: ./conf]",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, everything else on stderr.")
]
"""The parameter is called `as_json`; see `reported`."""
Debug = Annotated[
    bool, typer.Option("--debug", envvar="HYDRA_FULL_ERROR", help="Show the traceback of an error.")
]


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
