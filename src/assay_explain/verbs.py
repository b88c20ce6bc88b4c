"""Where values come from: `assay configs` and `explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli.verb import ConfigDir, Document, Overrides  # noqa: TC001 - typer reads annotations


def configs(
    document: Document,
    group: Annotated[str, typer.Argument(metavar="GROUP", hidden=True)] = "",
    config_dir: ConfigDir = None,
) -> None:
    """List the options of every group, or of one group."""
    from assay_explain.listing import options_of, print_options

    options = options_of(group, config_dir)
    document.say("configs", {"options": options})
    if not document.as_json:
        print_options(options)


def explain(
    document: Document,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key, a node, or a group.")],
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
) -> None:
    """Explain where a value comes from and what it overrode."""
    from assay_explain import origin

    explanation = origin.explain(key, overrides or [], config_dir)
    document.say("explain", explanation)
    origin.print_explanation(document.console, explanation)


VERBS = {"Look": {"configs": configs, "explain": explain}}
