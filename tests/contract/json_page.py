"""What docs/json.md says of each kind of document, from the classes that the documents are made of.

`python -m tests.contract.json_page` writes the part of the page below its mark.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import inspect
import re
import types
import typing
from collections import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from assay.check.report import Report
from assay.cli.verb import Problem
from assay.data.image.image_cache import CachedImages
from assay_explain.listing import Option

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
MARK = "<!-- from the classes: python -m tests.contract.json_page -->\n"
WORDS: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    Path: "path",
    Any: "anything",
    type(None): "null",
    datetime.datetime: "time",
    Literal: "text",
    dict: "object",
    abc.Mapping: "object",
}
PLAIN: dict[Any, Any] = {
    Path: str,
    float: float | Literal["nan", "inf", "-inf"],
    datetime.datetime: str,
    Literal: str,
}


def document(name: str, summary: str, **attributes: tuple[Any, str]) -> type:
    """What a verb says that has no class for it, as a class with such attributes."""
    made = dataclasses.make_dataclass(name, [(field, kind) for field, (kind, _) in attributes.items()])
    described = [f"    {field}: {text}" for field, (_, text) in attributes.items()]
    made.__doc__ = "\n".join([summary, "", "Attributes:", *described])
    return made


SWEEP_JOB: Any = document(
    "SweepJob",
    "A job of a sweep.",
    number=(int, "Of the job."),
    run_dir=(Path, "Where it writes."),
    status=(str, "`waiting`, `running`, `finished`, `failed`, `interrupted` or `pruned`."),
    overrides=(Sequence[str], "What stands for it in the sweep."),
    seed=(int, "Of the run."),
    attempts=(int, "Begun so far."),
    metrics=(Mapping[str, float], "Last value of each scalar."),
    best=(Mapping[str, Any], "Monitored metric, its value and the epoch of the best checkpoint."),
    seconds=(float, "It took."),
    cause=(str, "Kind of the failure, such as `out_of_memory`; empty where it did not fail."),
    reason=(str, "How it ended, when not well."),
    warnings=(Sequence[str], "What says that its model is of no use, although it has finished."),
    reused_from=(str, "Directory of the finished run of which it is a copy; empty where it was trained."),
)
SWEEP = document(
    "Sweep",
    "What a sweep has come to.",
    directory=(Path, "Where everything about it lies; `results.csv` has the same as a table."),
    total=(int, "Jobs that it asks for."),
    objectives=(Mapping[str, str], "`minimize` or `maximize` for each score; the first one decides."),
    best=(int | None, "Number of the best job; null where none has a score."),
    jobs=(Sequence[SWEEP_JOB], "In order."),
)
COMPOSED = document(
    "Composed",
    "What would run, from `train --cfg`.",
    configs=(
        Sequence[Mapping[str, Any]],
        "One of a run, or those of the jobs that a sweep begins with; what only the data knows is"
        " still an interpolation.",
    ),
)
CHECKED = document(
    "Checked",
    "A sweep that can run.",
    jobs=(Sequence[Report], "Those that it begins with, or that stand for all."),
)
CONFIGS = document(
    "Configs", "What there is to choose from.", options=(Sequence[Option], "Sorted by group and name.")
)
MACHINE = document(
    "Machine",
    "What this machine has.",
    versions=(Mapping[str, str], "Of Python and packages."),
    cpu=(Mapping[str, str], "Of the processor, in words."),
    gpu=(Mapping[str, str], "In words; `none` says why there is none."),
    auto=(Mapping[str, str], "What `device=auto` chooses, and why."),
)
CREATED = document(
    "Created",
    "A new project.",
    project=(Path, "Its folder."),
    files=(Sequence[str], "In it."),
    notes=(Sequence[str], "What is to be known about it."),
)
ADDED = document(
    "Added",
    "A component of a project.",
    option=(str, "What to type to choose it."),
    files=(Sequence[Path], "Its class, option and test."),
)
REMOVED = document("Removed", "What is gone.", runs=(Sequence[Path], "Directories of runs."))
CACHE = document(
    "Cache",
    "Decoded pictures that jobs share.",
    folder=(Path, "Where they lie."),
    num_bytes=(int, "Of all pictures."),
    files=(Sequence[CachedImages], "One for each folder of images; of `clear`, what was removed."),
    environments=(
        Mapping[str, int],
        "Bytes of each environment that `assay reproduce` has built, by its folder.",
    ),
)
KINDS: dict[str, tuple[str, str | type]] = {
    "run": ("train, resume RUN", "assay.run.result.RunResult"),
    "sweep": ("train -m, resume SWEEP", SWEEP),
    "try": ("try", "assay_lab.tries.Try"),
    "config": ("train --cfg", COMPOSED),
    "check": ("check", "assay.check.report.Report"),
    "check_sweep": ("check -m", CHECKED),
    "data": ("data", "assay_report.data_page.Survey"),
    "profile": ("profile", "assay_lab.measure.StepProfile"),
    "tune": ("tune", "assay_lab.measure.Tuning"),
    "configs": ("configs", CONFIGS),
    "explain": ("explain", "assay_explain.origin.Explanation"),
    "diff": ("diff", "assay_report.difference.Difference"),
    "info": ("info", MACHINE),
    "ls": ("ls", "assay_report.comparison_formats.Compared"),
    "compare": ("compare", "assay_report.comparison_formats.Compared"),
    "best": ("best", "assay_report.comparison_formats.Best"),
    "rm": ("rm", REMOVED),
    "cache": ("cache", CACHE),
    "convert": ("convert", "assay_project.convert.Conversion"),
    "new": ("new", CREATED),
    "add": ("add", ADDED),
    "schema": ("schema", "assay_project.schema.Schemas"),
    "eval": ("eval RUN", "assay_serve.evaluate.Evaluation"),
    "eval_sweep": ("eval SWEEP", "assay_serve.evaluate_members.MembersEvaluation"),
    "report": ("report", "assay_report.report.Report"),
    "export": ("export", "assay_serve.export.model_card.Exported"),
    "predict": ("predict", "assay_serve.predict.Predicted"),
    "reproduce": ("reproduce", "assay_lab.reproduce.Reproduction"),
}
"""What prints each kind of document, and the class whose attributes are its fields; see docs/json.md."""


def class_of(path: str | type) -> type:
    if isinstance(path, type):
        return path
    module, _, name = path.rpartition(".")
    found: type = getattr(importlib.import_module(module), name)
    return found


class Names(dict[str, Any]):
    """What the annotations of a module name, also where it is imported for type checkers alone."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(vars(typing) | vars(datetime) | vars(abc) | {"Path": Path} | vars(module))
        for home, names in re.findall(r"from (assay[\w.]+) import ([\w, ]+)", inspect.getsource(module)):
            for name in names.split(", "):
                self.setdefault(name, getattr(importlib.import_module(home), name, None))


def fields_of(owner: type) -> dict[str, Any]:
    """The fields that are shown, with their types; the others are for Python alone."""
    module = inspect.getmodule(owner)
    assert module is not None
    shown = {one.name: one.type for one in dataclasses.fields(owner) if one.repr}
    return typing.get_type_hints(types.SimpleNamespace(__annotations__=shown), globalns=Names(module))


def in_words(kind: Any, seen: dict[str, type]) -> str:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(in_words(one, seen) for one in parts)
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        assert seen.setdefault(kind.__name__, kind) is kind, "two classes of one name"
        return f"[{kind.__name__}](#{kind.__name__.lower()}-object)"
    if origin in (None, Literal):
        return WORDS[origin or kind]
    members = [*parts[1:]] if origin in (dict, abc.Mapping) else [*{one for one in parts if one is not ...}]
    name = "object" if origin in (dict, abc.Mapping) else "list"
    inner = in_words(members[0], seen) if len(members) == 1 else "anything"
    return name if inner == "anything" else f"{name} of {inner}"


def as_printed(kind: Any) -> Any:
    """The type of what JSON holds of a value."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(as_printed, parts))]  # noqa: UP007 - of a tuple
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        named = [(name, as_printed(inner)) for name, inner in fields_of(kind).items()]
        return msgspec.defstruct(kind.__name__, named, forbid_unknown_fields=True)
    if origin in (None, Literal):
        return PLAIN.get(origin or kind, kind)
    if origin in (dict, abc.Mapping):
        return dict[str, as_printed(parts[1])]  # type: ignore[misc]  # made at run time
    members = {as_printed(one) for one in parts if one is not ...}
    return list[members.pop() if len(members) == 1 else Any]  # type: ignore[misc]  # made at run time


def described(owner: type) -> dict[str, str]:
    """The attributes of a class, as its docstring describes them."""
    text = inspect.getdoc(owner) or ""
    section = re.search(r"^Attributes:\n((?:    .*\n?|\n)*)", text, re.MULTILINE)
    assert section, f"{owner.__name__} describes no attributes"
    found = re.findall(r"^    (\w+): ((?:.*\n?)(?:     .*\n?)*)", section[1], re.MULTILINE)
    return {name: re.sub(r"\bNone\b", "null", " ".join(text.split())) for name, text in found}


def table(owner: type, seen: dict[str, type]) -> list[str]:
    fields, texts = fields_of(owner), described(owner)
    assert set(fields) <= set(texts), owner
    lines = ["| field | type | |", "|---|---|---|"]
    return lines + [
        f"| `{name}` | {in_words(kind, seen)} | {texts[name].replace('|', chr(92) + '|')} |"
        for name, kind in fields.items()
    ]


def summary(owner: type) -> str:
    return (inspect.getdoc(owner) or "").partition("\n\n")[0]


def reference() -> str:
    """The page below its mark."""
    seen: dict[str, type] = {}
    lines: list[str] = []
    for kind, (commands, path) in KINDS.items():
        owner = class_of(path)
        by = ", ".join(f"`{command}`" for command in commands.split(", "))
        lines += ["", f"### `{kind}`", "", f"{summary(owner)} Printed by {by}.", "", *table(owner, seen)]
    lines += ["", "### `error`", "", summary(Problem), "", *table(Problem, seen), "", "## What is in them"]
    done: set[str] = set()
    while left := sorted(set(seen) - done):
        for name in left:
            lines += ["", f"### {name} object", "", summary(seen[name]), "", *table(seen[name], seen)]
            done.add(name)
    return "\n".join(lines) + "\n"


def problems_of(document: dict[str, Any]) -> list[str]:
    """What in a printed document is not as the page says."""
    error = document.get("error")
    beside = ("kind", "schema_version", "error", "next")
    rest = {name: one for name, one in document.items() if name not in beside}
    try:
        if document["kind"] == "error":
            assert not rest
            assert error is not None
        else:
            msgspec.convert(rest, type=as_printed(class_of(KINDS[document["kind"]][1])))
        msgspec.convert(document.get("next", ["assay"]), type=list[str])
        msgspec.convert(error, type=as_printed(Problem) | None)
    except msgspec.ValidationError as wrong:
        return [str(wrong)]
    return [] if document["schema_version"] == 1 else ["schema_version"]


if __name__ == "__main__":
    head = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(head + MARK + reference(), encoding="utf-8")
