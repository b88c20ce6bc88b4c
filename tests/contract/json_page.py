"""What docs/json.md says of each kind of document, from the classes that the documents are made of.

`python -m tests.contract.json_page` writes the part of the page below its mark.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from assay.cli.documents import KINDS, Problem

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
MARK = "<!-- from the classes: python -m tests.contract.json_page -->\n"
WORDS = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "true or false",
    "Path": "path",
    "Any": "anything",
    "Mapping": "object",
    "dict": "object",
    "datetime": "time",
    "None": "null",
    "Literal": "text",
    "Status": "text",
    "Cause": "text",
    "Direction": "text",
    "TaskName": "text",
}
CHECKS: dict[str, Any] = {
    "text": lambda value: isinstance(value, str),
    "path": lambda value: isinstance(value, str),
    "time": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float) or value in ("nan", "inf", "-inf"),
    "true or false": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
    "anything": lambda _: True,
}
LISTS = ("Sequence", "list", "tuple", "Collection")
MAPPINGS = ("Mapping", "dict")


def class_of(path: str) -> type:
    module, _, name = path.rpartition(".")
    found: type = getattr(importlib.import_module(module), name)
    return found


def named_in(owner: type, name: str) -> Any:
    """What an annotation of a class names, also where it is imported for type checkers alone."""
    module = inspect.getmodule(owner)
    assert module is not None
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        names = {one.asname or one.name for one in node.names} if isinstance(node, ast.ImportFrom) else ()
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("assay") and name in names:
            return getattr(importlib.import_module(str(node.module)), name)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return node.value
    return getattr(module, name, None)


class Schema:
    """The fields of the documents of one class, and of those within.

    Args:
        owner: A dataclass whose docstring describes its attributes.
    """

    def __init__(self, owner: type) -> None:
        self.owner, self.inner = owner, dict[str, type]()
        shown = [one for one in dataclasses.fields(owner) if one.repr]  # the others are for Python alone
        self.fields = {one.name: self._type(ast.parse(str(one.type), mode="eval").body) for one in shown}
        hidden = {one.name for one in dataclasses.fields(owner)} - set(self.fields)
        self.told = {name: told for name, told in described(owner).items() if name not in hidden}

    def _type(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return "null" if node.value is None else self._type(ast.parse(str(node.value), mode="eval").body)
        if isinstance(node, ast.BinOp):
            return ("or", self._type(node.left), self._type(node.right))
        if isinstance(node, ast.Subscript):
            return self._of_several(node)
        assert isinstance(node, ast.Name), ast.dump(node)
        named = None if node.id in WORDS else named_in(self.owner, node.id)
        if isinstance(named, ast.expr):  # an alias, such as Rows
            return self._type(named)
        if named is not None:
            assert isinstance(named, type)
            assert dataclasses.is_dataclass(named), f"{self.owner.__name__}: {node.id}"
            self.inner[node.id] = named
            return ("class", node.id)
        return WORDS[node.id]

    def _of_several(self, node: ast.Subscript) -> Any:
        assert isinstance(node.value, ast.Name)
        base = node.value.id
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if base in LISTS:
            kinds = [self._type(one) for one in parts if getattr(one, "value", None) is not ...]
            return ("list", kinds[0] if len(set(map(str, kinds))) == 1 else "anything")
        return ("object", self._type(parts[1])) if base in MAPPINGS else WORDS[base]

    def problems(self, value: Any, at: str = "") -> list[str]:
        """What in a document is not as this says."""
        found = [f"{at}: {sorted(set(value) ^ set(self.fields))}"] if set(value) != set(self.fields) else []
        return found + [
            problem
            for name, kind in self.fields.items()
            if name in value
            for problem in self._problems(value[name], kind, f"{at}.{name}")
        ]

    def _problems(self, value: Any, kind: Any, at: str) -> list[str]:
        if isinstance(kind, str):
            return [] if CHECKS[kind](value) else [f"{at}: {value!r:.60} is not {kind}"]
        name, *inner = kind
        if name == "or":
            every = [self._problems(value, one, at) for one in inner]
            return [] if not all(every) else every[0]
        if name == "class":
            return (
                Schema(self.inner[inner[0]]).problems(value, at)
                if isinstance(value, dict)
                else [f"{at}: {value!r:.60}"]
            )
        if not isinstance(value, list if name == "list" else dict):
            return [f"{at}: {value!r:.60} is not a {name}"]
        values = value.values() if isinstance(value, dict) else value
        return [problem for one in values for problem in self._problems(one, inner[0], at)]


def in_words(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    name, *inner = kind
    if name == "or":
        return " or ".join(map(in_words, inner))
    if name == "class":
        return f"[{inner[0]}](#{inner[0].lower()}-object)"
    return f"{name} of {in_words(inner[0])}" if inner[0] != "anything" else name


def described(owner: type) -> dict[str, str]:
    """The attributes of a class, as its docstring describes them."""
    text = inspect.getdoc(owner) or ""
    section = re.search(r"^Attributes:\n((?:    .*\n?|\n)*)", text, re.MULTILINE)
    assert section, f"{owner.__name__} describes no attributes"
    found: dict[str, str] = {}
    for line in section[1].splitlines():
        if match := re.match(r"    (\w+): (.*)", line):
            name = match[1]
            found[name] = match[2]
        elif line.strip():
            found[name] += f" {line.strip()}"
    return {name: re.sub(r"\bNone\b", "null", told) for name, told in found.items()}


def table(owner: type, seen: dict[str, type]) -> list[str]:
    schema = Schema(owner)
    assert all(seen.get(name, one) is one for name, one in schema.inner.items()), "two classes of one name"
    seen |= schema.inner
    assert set(schema.told) == set(schema.fields), owner
    lines = ["| field | type | |", "|---|---|---|"]
    return lines + [
        f"| `{name}` | {in_words(kind)} | {schema.told[name].replace('|', chr(92) + '|')} |"
        for name, kind in schema.fields.items()
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
    rest = dict(document)
    kind, version, error = rest.pop("kind"), rest.pop("schema_version"), rest.pop("error", None)
    commands = rest.pop("next", ["assay"])
    found = [] if version == 1 else [f"schema_version: {version}"]
    if not commands or not all(isinstance(one, str) for one in commands):
        found.append(f"next: {commands}")
    if error is not None:
        found += Schema(Problem).problems(error, "error")
    if kind == "error":
        return found + ([] if error is not None and not rest else ["an error and nothing else"])
    return found + Schema(class_of(KINDS[kind][1])).problems(rest)


if __name__ == "__main__":
    head = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(head + MARK + reference(), encoding="utf-8")
