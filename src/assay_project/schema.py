"""JSON Schemas of config groups, by which editors complete and check YAML."""

from __future__ import annotations

import collections.abc
import inspect
import json
import pkgutil
import re
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import msgspec
from omegaconf import OmegaConf

from assay.assemble.node import NOT_ARGUMENTS
from assay.check.signature import injected_arguments
from assay.config.unread_keys import FIXED, TOP
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError, ConfigError, first_line
from assay.files.atomic import write_text
from assay.paths import CONF_DIR, project_conf
from assay.targets.annotation import MAPPINGS, SEQUENCES, accepts, is_object, members_of
from assay.targets.call_signature import call_of
from assay.targets.resolve import WORDS, resolve
from assay.targets.trust import ProjectFile, is_within, project_packages
from assay_project.new import SCHEMAS, SETTINGS, editor_settings, package_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    Schema = dict[str, Any]

_DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
"""What editors read best."""
_ARGUMENT = re.compile(r"^ {4}(\w+)(?: \([^\n]*?\))?: (.+(?:\n {5,}.+)*)", re.MULTILINE)
"""An entry below `Args:`."""
_LIBRARIES = ("torch", "torchvision", "torchmetrics", "lightning")
_WITH_TARGET = {"required": ["_target_"]}
_MANY = ("callbacks", "logger")
"""Groups whose options add up: `callbacks.NAME`."""
_NOT_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "hydra/sweeper": ("params", "objective", "direction", "reuse")
}
"""Keys that are read before a node is called, beside those of `assay.assemble.node`."""


@final
@dataclass(frozen=True)
class Schemas:
    """What editors check the YAML of a project by.

    Attributes:
        folder: Where the schemas are.
        files: Their names.
        settings: The file that says which schema belongs to which folder of `conf`.
        notes: What they do not check, and why.
    """

    folder: Path
    files: Sequence[str]
    settings: Path
    notes: Sequence[str]


def write_schemas(root: Path) -> Schemas:
    """Write a schema for each config group of the project in a folder, its own options included."""
    if not (root / "conf").is_dir():
        where = f"there is no folder conf in {root.absolute()}"
        raise ConfigError(
            where, hint="start assay in a project's folder; assay new NAME makes one"
        )
    own = project_conf(root)
    folders = [CONF_DIR, *([own] if own else [])]
    builder = _Builder(folders, project_packages(own))
    written = builder.build()
    for name, schema in written.items():
        write_text(
            root / SCHEMAS / name, json.dumps({**_DRAFT, **schema}, indent=1, default=str) + "\n"
        )
    settings = root / SETTINGS
    mapping = editor_settings(*folders)
    notes = builder.notes
    if settings.exists() and SCHEMAS not in settings.read_text(encoding="utf-8"):
        notes.append(
            f"{SETTINGS} does not name these schemas: add to it what {SCHEMAS}/settings.json says"
        )
        settings = root / SCHEMAS / "settings.json"
    if not settings.exists() or settings.parent.name == SCHEMAS:
        write_text(settings, mapping)
    return Schemas(root / SCHEMAS, sorted(written), settings, notes)


def _ref(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def _when(condition: Mapping[str, Any], then: Mapping[str, Any]) -> Schema:
    return {"if": condition, "then": then}


def _mapping(properties: Mapping[str, Any], others: Any = False, **more: Any) -> Schema:
    return {
        "type": ["object", "null"],
        "properties": properties,
        "additionalProperties": others,
        **more,
    }


def _closed(keys: Sequence[str]) -> Schema:
    return _mapping(dict.fromkeys(keys, _ref("value")))


def _target_nodes(value: Any, key: str) -> Iterator[tuple[str, Schema]]:
    if isinstance(value, dict):
        if isinstance(target := value.get("_target_"), str) and re.fullmatch(
            r"\w+(\.\w+)+", target
        ):
            yield key, value
        for name, inner in value.items():
            yield from _target_nodes(inner, f"{key}.{name}")
    for inner in value if isinstance(value, list) else ():
        yield from _target_nodes(inner, f"{key}[]")


@final
class _Builder:
    """Gathers the options of each group, and what their targets take."""

    def __init__(self, folders: Sequence[Path], packages: Sequence[str]) -> None:
        self.notes: list[str] = []
        self._packages = packages
        self._definitions: Schema = {}
        self._options: dict[str, Schema] = {}
        self._keys: dict[str, set[str]] = {}
        self._packages_of: dict[str, str] = {}
        self._nodes: dict[str, list[tuple[str, Schema]]] = {}
        for folder, path in (
            (one, path) for one in folders for path in sorted(one.rglob("*.yaml"))
        ):
            is_shipped = folder == CONF_DIR  # else it can be a mistake
            group = path.relative_to(folder).parent.as_posix().strip(".")
            node: Any = OmegaConf.to_container(load_mapping(path), resolve=False)
            if group:
                self._options.setdefault(group, {})[path.stem] = node
                self._keys.setdefault(group, set()).update(node if is_shipped else ())
                self._packages_of.setdefault(group, package_of(path) or group)
            for key, inner in _target_nodes(node, self._packages_of.get(group, "")):
                if is_shipped:
                    sure = inner
                else:
                    sure = {word: inner[word] for word in WORDS if word in inner}
                self._nodes.setdefault(inner["_target_"], []).append((key, sure))

    def build(self) -> dict[str, Schema]:
        """Each schema by the name of its file; the groups share the definitions of one."""
        known = [target for target in self._nodes if self._define_call(target)]
        packages = "|".join(map(re.escape, (*_LIBRARIES, *self._packages)))
        dotted = rf"^(({packages})(\.\w+)+|.*\$\{{.*|\?\?\?)$"
        self._definitions |= {
            "interpolation": {"type": "string", "pattern": r"\$\{|^\?\?\?$"},
            "target": {
                "anyOf": [
                    {"enum": sorted({*known, "assay.load"})},
                    {"type": "string", "pattern": dotted},
                ]
            },
            "node": {
                "type": "object",
                **_WITH_TARGET,
                "properties": {"_target_": _ref("target")},
                "allOf": [
                    _when({"properties": {"_target_": {"const": name}}}, _ref(name))
                    for name in known
                ],
            },
            "value": {
                **_when(_WITH_TARGET, {"if": {"type": "object"}, "then": _ref("node")}),
                "else": {"items": _ref("value"), "additionalProperties": _ref("value")},
            },
        }
        for group in self._options:
            self._define_group(group)
        self._define_config()
        files: dict[str, Schema] = {"definitions.json": {"definitions": self._definitions}}
        for name in [*(group.replace("/", ".") for group in self._options), "config"]:
            files[f"{name}.json"] = {"allOf": [{"$ref": f"definitions.json#/definitions/{name}"}]}
        return {**files, "project.json": msgspec.json.schema(ProjectFile)}

    def _locate(self, target: str, key: str) -> Any:
        """What a target names; None where it cannot be called, and a note says why."""
        try:
            # launchers and searches, which no node calls
            if is_within(target, ("assay_sweep", "optuna")):
                return pkgutil.resolve_name(target)
            return resolve(key, target, self._packages)
        except (AssayError, ImportError, AttributeError) as error:
            self.notes.append(f"arguments of {target} are not checked: {first_line(error)}")
            return None

    def _define_call(self, target: str) -> bool:
        """Define the node of one target; False where it cannot be found."""
        nodes = self._nodes[target]
        top = next((key for key, _ in nodes if "." not in key and "[" not in key), "")
        kind = self._locate(target, top or nodes[0][0])
        if kind is None:
            return False
        given: set[str] = set()
        later = None
        if top:
            later = injected_arguments(OmegaConf.create({top: nodes[0][1]}), top)
        if later is not None and (call := call_of(kind)) is not None:
            given = {*later.names, *call.by_position[: later.by_position]}
        definition = self._arguments(kind, [node for _, node in nodes], given)
        properties = definition["properties"]
        for name, inner in getattr(kind, "mapping_arguments", {}).items():
            properties[name] = self._arguments(inner, [])
        fixed = {
            key.rpartition(".")[2]: names
            for key, names in FIXED.items()
            if key.startswith(f"{top}.")
        }
        policy = self._options.get(top, {}).get("_policy", ())  # of all launchers
        for name in (*{**NOT_ARGUMENTS, **_NOT_ARGUMENTS}.get(top, ()), *policy, *fixed):
            properties.setdefault(name, _closed(fixed[name]) if name in fixed else _ref("value"))
        if f"{top}/transform" in self._options:
            properties["transform"] = _ref(f"{top}.transform")
        properties |= {name: schema_of(expected) for name, expected in WORDS.items()}
        properties |= {"_target_": _ref("target"), "defaults": _ref("defaults")}
        self._definitions[target] = definition
        return True

    def _arguments(
        self, kind: Any, nodes: Sequence[Mapping[str, Any]], given: Sequence[str] | set[str] = ()
    ) -> Schema:
        """The arguments of a class or function, with the values that option files give them."""
        call = call_of(kind)
        text = inspect.getdoc(kind) or ""
        about = dict(
            _ARGUMENT.findall(text if "Args:" in text else inspect.getdoc(kind.__init__) or "")
        )
        properties: Schema = {}
        for name, parameter in (call.parameters if call is not None else {}).items():
            if name not in given:
                shipped = [node[name] for node in nodes if name in node]
                properties[name] = _property(
                    parameter, " ".join(about.get(name, "").split()), shipped
                )
        is_open = call is None or call.takes_any
        return _mapping(properties, is_open, description=text.partition("\n")[0])

    def _define_group(self, group: str) -> None:
        """Define a file of a group, the node it becomes, and that of each of its options."""
        name = group.replace("/", ".")
        options = self._options[group]
        package = self._packages_of[group]
        if package == "_global_":
            self._definitions[name] = _ref("config")
            return
        if package in self._options and package != group:  # such as device, part of the trainer
            self._definitions[name] = _ref(f"any.{package}")
            return
        nodes = [node for node in options.values() if isinstance(node, dict)]
        targets = {
            node["_target_"] for node in nodes if node.get("_target_") in self._definitions
        }
        found = [self._definitions[target] for target in sorted(targets)]
        properties: Schema = dict.fromkeys(sorted(self._keys[group] - {*WORDS}), _ref("value"))
        for key in {key for one in found for key in one["properties"]}:
            forms = [one["properties"][key] for one in found if key in one["properties"]]
            if forms.count(forms[0]) == len(forms):
                properties[key] = forms[0]
            else:
                properties[key] = {"anyOf": forms}
        properties |= {"defaults": _ref("defaults"), "_target_": _ref("target")}
        is_open = name in ("data.transform", "hydra") or any(
            one["additionalProperties"] for one in found
        )
        self._definitions[f"any.{name}"] = _mapping(properties, is_open)
        self._definitions[name] = {
            **_when(_WITH_TARGET, _ref("node")),
            "else": _ref(f"any.{name}"),
        }

    def _define_config(self) -> None:
        """Define an experiment, and what else is merged into the whole config."""
        values: Any = OmegaConf.to_container(load_mapping(CONF_DIR / "train.yaml"), resolve=False)
        properties: Schema = {"hydra": {"type": "object"}, "defaults": _ref("choices")}
        override = {}
        for name in {**dict.fromkeys(TOP), **values}:
            options = {
                key: node for key, node in self._options.get(name, {}).items() if key[0] != "_"
            }
            if name in FIXED and name not in self._options:
                properties[name] = _closed(FIXED[name])
            elif name in _MANY:
                properties[name] = _mapping(dict.fromkeys(options, _ref(name)), _ref(name))
            elif options:
                properties[name] = _ref(name)
            elif name not in ("run_dir", "recipe", "defaults"):
                properties[name] = {"allOf": [_ref("value")], "default": values.get(name)}
        for group, options in self._options.items():
            names = sorted(option for option in options if option[0] != "_")
            one = {"anyOf": [{"enum": [*names, None]}, _ref("interpolation")]}
            override[f"override /{group}"] = {"anyOf": [one, {"type": "array", "items": one}]}
        items = _mapping(override, patternProperties={r"@|^(?!override /)": {}})
        self._definitions["defaults"] = {"type": "array", "items": {"type": ["string", "object"]}}
        self._definitions["choices"] = {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, items]},
        }
        self._definitions["config"] = _mapping(properties)


def _property(parameter: inspect.Parameter, about: str, shipped: Sequence[Any]) -> Schema:
    """One argument: what its annotation takes, and what is written for it in option files."""
    annotation = parameter.annotation
    default = parameter.default
    forms = list(schema_of(annotation)["anyOf"])
    if parameter.name == "mode":  # assay takes more words for it than Lightning
        forms.append({"type": "string"})
    shipped = [value for value in shipped if value != "???"]
    for value in [*([] if default is parameter.empty else [default]), *shipped]:
        if (isinstance(value, dict) and "_target_" in value) or "${" in str(value):
            continue
        form: Schema = _ref("value")
        if isinstance(value, bool | int | float | str | None):
            form = {"enum": [value]}
        if form not in forms and not accepts(annotation, value):
            forms.append(form)
    schema: Schema = {}
    if about:
        schema = {"description": about}
    value = [*shipped, default][0]
    is_plain = isinstance(value, bool | int | float | str | list | tuple | None)
    if is_plain and shipped.count(value) == len(shipped):
        schema |= {"default": value}
    return {**schema, "anyOf": forms}


_VALUE = {"$ref": "#/definitions/value"}
_NODE = {"$ref": "#/definitions/node"}
_INTERPOLATION = {"$ref": "#/definitions/interpolation"}


def schema_of(annotation: Any) -> dict[str, Any]:
    """JSON Schema (draft 7) of what YAML may hold where the annotation stands, as `accepts` judges it.

    It refers to definitions of a `value`, of a `node` with a `_target_` and of an `interpolation`.

    >>> schema_of(int | None)["anyOf"]
    [{'type': 'integer'}, {'type': 'null'}, {'$ref': '#/definitions/interpolation'}]
    """
    return {"anyOf": [*_forms(annotation), _INTERPOLATION]}


def _forms(annotation: Any) -> list[dict[str, Any]]:  # noqa: PLR0911 - one for each kind of annotation
    if len(parts := members_of(annotation)) > 1:
        return [form for part in parts for form in _forms(part)]
    origin = typing.get_origin(annotation)
    args = typing.get_args(annotation)
    if origin is typing.Literal:
        return [{"enum": [*args]}]
    if origin in MAPPINGS:
        plain = {"type": "object", "not": {"required": ["_target_"]}}
        return [{**plain, "additionalProperties": schema_of(args[1])}, _NODE]
    if origin is tuple and args[1:] != (...,):
        size = {"minItems": len(args), "maxItems": len(args)}
        return [{"type": "array", "items": [schema_of(item) for item in args], **size}, _NODE]
    if origin in SEQUENCES:
        return [{"type": "array", "items": schema_of(args[0])}, _NODE]
    try:
        form = msgspec.json.schema(annotation, schema_hook=_schema_of_object)
    except Exception:  # an annotation that msgspec does not judge
        return [_VALUE]
    named = [inner for inner in form.get("$defs", {}).values() if "enum" in inner]
    return named or [_VALUE if not form or "$defs" in form else form]


def _schema_of_object(kind: Any) -> dict[str, Any]:
    kind = typing.get_origin(kind) or kind
    if kind is collections.abc.Callable or is_object(kind):
        return _NODE
    return _VALUE
