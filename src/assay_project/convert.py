"""Configs of lightning-hydra-template and of a LightningCLI as those of an assay project; read, never run."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.hydra_internals import as_override
from assay.config.tree import walk_plain
from assay.config.yaml_file import display_path, file_error, load_yaml
from assay.errors import ConfigError
from assay.files.atomic import temporary_folder, write_text
from assay.paths import CONF_DIR
from assay.targets.trust import is_library

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Tree = dict[str, Any]

_GROUPS = {"model": "module", "module": "module", "data": "data", "datamodule": "data"}
"""Groups of the template and its forks whose options become options of one of assay's."""
_PARTS = ("trainer", "callbacks", "logger")
"""Groups whose values go into experiments."""
_SAME = ("name", "seed", "tags")
_TYPED = {
    "debug": "debug=one_batch, overfit, anomaly, profiler or small",
    "hparams_search": "assay train -m hydra/sweeper=optuna KEY='interval(…)', or a file in conf/sweep",
    "hydra": "hydra.run.dir=FOLDER hydra.sweep.dir=FOLDER",
    "eval": "assay eval RUN",
}
"""What does the same as the options of other groups."""
_DEVICES = {
    "cuda": "gpu",
    "cpu ddp": "ddp_cpu",
    **dict.fromkeys(("gpu ddp", "cuda ddp", "auto ddp"), "ddp"),
}
_PRECISIONS = {"16": "fp16", "bf16": "bf16", "32": "fp32", "64": "fp64", "None": "fp32"}
_LOGGERS = {"TensorBoardLogger": "tensorboard", "WandbLogger": "wandb", "MLFlowLogger": "mlflow"}
_INCLUDED = re.compile(r"(Rich|TQDM)?(ProgressBar|ModelSummary)|LearningRateMonitor|CSVLogger")
"""Lightning's classes whose work is done in any case."""
_IGNORED = re.compile(
    r"_target_|default_root_dir|logger|callbacks|devices|use_distributed_sampler|inference_mode|enable_\w+"
    r"|num_sanity_val_steps|ckpt_path|task_name|train|test|hydra|extras"
)
"""Keys that assay sets itself or has no need of."""


@final
@dataclass(frozen=True)
class Conversion:
    """What became of a project's configs.

    Attributes:
        folder: That was written, if `experiments` is not empty.
        experiments: What `assay train experiment=…` takes there.
        trusted_packages: Of the project; `conf/project.yaml` has them, so their code runs in a training.
        mapped: By config of the project, what became of it: a file in `folder`, or what to type instead.
        unsure: What was not taken over, by file, with what to do about it.
    """

    folder: Path
    experiments: Sequence[str]
    trusted_packages: Sequence[str]
    mapped: Mapping[str, str]
    unsure: Mapping[str, Mapping[str, str]]


def convert(path: Path, out: Path | None = None) -> Conversion:
    """Read the configs of a project and write what is sure of them into a new folder.

    Args:
        path: A project, its folder of configs, or the YAML file of a LightningCLI.
        out: The folder to write, which also gets a copy of the packages that the configs name. By default
            `PROJECT_assay` in the current directory.

    Raises:
        ConfigError: There are no configs, one cannot be read, or the folder is not empty.
    """
    root, files, texts = _read_project(path)
    folder = out or Path(f"{root.resolve().name}_assay")
    _check_empty(folder)
    named = sorted({name.partition(".")[0] for name in _targets(files)})
    named = [name for name in named if name.isidentifier() and not is_library(name)]
    found = (root / name if (root / name).is_dir() else root / f"{name}.py" for name in named)
    sources = [source for source in found if source.exists()]
    reader = _Reader(files, texts, [source.stem for source in sources])
    if reader.experiments:
        with temporary_folder(folder) as made:
            for name, text in reader.written.items():
                write_text(made / "conf" / name, text)
            for source in sources:
                copy = shutil.copytree if source.is_dir() else shutil.copy
                copy(source, made / source.name)
            if folder.exists():
                folder.rmdir()
            made.replace(folder)
    return Conversion(folder, reader.experiments, reader.packages, reader.mapped, reader.unsure)


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        hint = "name a folder that does not exist: --out FOLDER"
        raise ConfigError(f"{folder} exists; refusing to overwrite", key="--out", hint=hint)


def _read_project(path: Path) -> tuple[Path, dict[str, Tree], dict[str, str]]:
    """The folder of a project; its configs by their names, as trees and as written."""
    for configs in (path / "configs", path / "conf", path / "config", path):
        if (configs / "project.yaml").is_file():
            raise ConfigError(
                "is already an assay project", key=str(path), hint="see: assay configs"
            )
        if any("defaults" in _load(file) for file in sorted(configs.glob("*.yaml"))):
            found = {
                file.relative_to(configs).as_posix()[:-5]: file
                for file in configs.rglob("*.yaml")
            }
            files = {name: _load(found[name]) for name in sorted(found)}
            texts = {name: found[name].read_text(encoding="utf-8") for name in files}
            return path if configs != path else configs.resolve().parent, files, texts
    file = path
    if not path.is_file():
        file = path / "config.yaml"
    if not file.is_file():
        expected = "expected configs/train.yaml with a defaults list, or the config.yaml of a LightningCLI"
        raise ConfigError(
            expected, key=str(path), hint="assay convert PROJECT, or assay convert FILE.yaml"
        )
    files = _read_cli(file)
    return file.parent, files, {name: _dump(tree) for name, tree in files.items()}


def _load(path: Path) -> Tree:
    try:
        content: Any = OmegaConf.to_container(load_yaml(path), resolve=False)
    except (yaml.YAMLError, OmegaConfBaseException, OSError, ValueError, RecursionError) as error:
        raise file_error(error, path) from error
    if not isinstance(content, dict):
        raise ConfigError(
            "expected a mapping", file=display_path(path), hint="move it out of the folder"
        )
    return content


def _read_cli(path: Path) -> dict[str, Tree]:
    """A LightningCLI's config as files of the template."""
    content = _to_node(_load(path))
    content = content.get("fit") or content
    if not isinstance(trainer := content.get("trainer"), dict) or "model" not in content:
        hint = "python main.py fit --print_config > config.yaml"
        raise ConfigError(
            "expected the keys trainer and model", file=display_path(path), hint=hint
        )
    content["defaults"] = []
    files = {}
    for group in ("callbacks", "logger"):
        nodes = trainer.pop(group, None)
        nodes = [
            node
            for node in (nodes if isinstance(nodes, list) else [nodes])
            if isinstance(node, dict)
        ]
        content[group] = {_snake(node): node for node in nodes}
    for group in ("model", "data"):
        if "_target_" in (node := content.get(group) or {}):
            files[f"{group}/{_snake(node)}"] = content.pop(group)
            content["defaults"].append({group: _snake(node)})
    seed = content.pop("seed_everything", None)
    return {path.stem: {"seed": None if isinstance(seed, bool) else seed, **content}, **files}


def _to_node(value: Any) -> Any:
    """`class_path` and `init_args` as `_target_` and its arguments."""
    if isinstance(value, list):
        return [_to_node(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if "class_path" in value:
        value = {"_target_": value["class_path"], **(value.get("init_args") or {})}
    return {key: _to_node(inner) for key, inner in value.items()}


def _snake(node: Tree) -> str:
    return re.sub(
        r"(?<=[a-z0-9])(?=[A-Z])", "_", str(node.get("_target_")).rpartition(".")[2]
    ).lower()


def _targets(value: Any) -> Iterator[str]:
    """The names that configs call."""
    for _, node in walk_plain(value):
        if isinstance(node, dict):
            yield str(node.get("_target_") or "")


def _dump(tree: Tree) -> str:
    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=110))


def _place(group: str, option: object) -> str:
    """Where an option is written; assay's own of the same name would be read in its place."""
    name = str(option).removesuffix(".yaml")
    return f"{group}/{'my_' * (CONF_DIR / group / f'{name}.yaml').is_file()}{name}"


def _merge(*trees: Tree) -> Tree:
    merged: Any = OmegaConf.to_container(OmegaConf.merge(*trees), resolve=False)
    return dict(merged)


@final
class _Reader:
    """Reads all files; holds what is to be written, and what is said of them."""

    def __init__(
        self, files: Mapping[str, Tree], texts: Mapping[str, str], packages: Sequence[str]
    ) -> None:
        self.files = files
        self.texts = texts
        self.packages = packages
        self.written = {"project.yaml": _dump({"trusted_packages": [*packages]})}
        self.experiments: list[str] = []
        self.mapped: dict[str, str] = {}
        self.unsure: dict[str, dict[str, str]] = {}
        tops = {name: name.partition("/")[0] for name in files}
        self.groups = {
            theirs: ours for theirs, ours in _GROUPS.items() if theirs in tops.values()
        }
        if "module" in self.groups:  # then group `model` holds networks
            self.groups.pop("model", None)
        roots = [
            name
            for name in files
            if "/" not in name and "eval" not in name and "defaults" in files[name]
        ]
        roots.sort(key=lambda name: name != "train")
        for name, top in tops.items():
            is_read = "/" in name and top not in (*_TYPED, *_PARTS) and self._is_read(top)
            if top in self.groups or is_read:
                self._copy(name)
            elif top in _PARTS:
                _, chosen = self._take(name, {top: self._compose(name)[1]})
                self.mapped[name] = " ".join(
                    f"{key}={as_override(option)}" for key, option in chosen.items()
                )
            elif top != "experiment" and name not in roots:
                self.mapped[name] = _TYPED.get(top, "nothing here reads it")
            self._doubt_code(name)
        for name, top in tops.items() if roots else ():
            if name in roots or top == "experiment":
                self._write_experiment(name, *dict.fromkeys((roots[0], name)))

    def _is_read(self, key: str) -> bool:
        read = [
            self.texts[name]
            for name in self.files
            if name.partition("/")[0] not in (*_TYPED, *_PARTS)
        ]
        return re.search(rf"\$\{{{key}[.}}\[]", "".join(read)) is not None

    def _doubt(self, name: str, what: str, hint: str) -> None:
        self.unsure.setdefault(name, {})[what] = hint

    def _doubt_code(self, name: str) -> None:
        for package in {target.partition(".")[0] for target in _targets(self.files[name])} - {
            "",
            "optuna",
        }:
            if package not in self.packages and not is_library(package):
                hint = "is not part of the project; trusted_packages may have it"
                self._doubt(name, f"package {package}", hint)
        for line in re.sub(r"(?m)(^|\s)#.*$", "", self.texts[name]).splitlines():
            if re.search(r"\$\{\s*(?!oc\.|hydra:|now:)[\w.]+:", line):
                self._doubt(name, line.strip(), "Python would compute this; write the value")

    def _rename(self, text: str) -> str:
        for theirs, ours in self.groups.items():
            text = re.sub(rf"\$\{{{theirs}(?=[.}}\[])", f"${{{ours}", text)
        text = text.replace("${oc.env:PROJECT_ROOT}", "${oc.env:PROJECT_ROOT,.}")
        return re.sub(r"(_target_: [\"']?)pytorch_lightning\.", r"\1lightning.pytorch.", text)

    def _copy(self, name: str) -> None:
        group, _, option = name.partition("/")
        group = self.groups.get(group, group)
        text = self.texts[name]
        for item in self.files[name].get("defaults") or []:
            if isinstance(item, str):
                text = re.sub(
                    rf"(?m)^(\s*- ){re.escape(item)}\s*$",
                    rf"\1{_place(group, item)[len(group) + 1 :]}",
                    text,
                )
            elif "/" in str(item):
                self._doubt(name, f"defaults: {item}", "belongs in an experiment")
        path = _place(group, option)
        self.written[f"{path}.yaml"] = self._rename(text)
        self.mapped[name] = f"conf/{path}.yaml"

    def _compose(self, name: str) -> tuple[Tree, Tree]:
        """The choices and values of a file and of those that it inherits from."""
        choices: Tree = {}
        content = dict(self.files.get(name.removesuffix(".yaml"), {}))
        values = []
        for item in content.pop("defaults", None) or []:
            if isinstance(item, dict):
                choices |= {
                    str(key).split()[-1].strip("/"): option for key, option in item.items()
                }
            elif item != "_self_":
                more, inherited = self._compose(f"{name.rpartition('/')[0]}/{item}")
                choices |= more
                values.append(inherited)
        return choices, _merge(*values, content)

    def _take(self, name: str, parts: Mapping[str, Tree]) -> tuple[Tree, Tree]:
        """What assay has of a trainer, its callbacks and loggers: values, and options."""
        taken: Tree = {}
        chosen: Tree = {}
        for group, node in parts.items():
            take = self._take_trainer if group == "trainer" else self._take_nodes
            taken[group], options = take(name, group, dict(node))
            chosen |= options
        return taken, chosen

    def _take_trainer(self, name: str, group: str, node: Tree) -> tuple[Tree, Tree]:
        known = _load(CONF_DIR / "trainer/default.yaml")
        taken = {}
        accelerator, strategy = (
            str(node.pop(key, None) or "auto") for key in ("accelerator", "strategy")
        )
        device = accelerator
        if strategy != "auto":
            device = f"{accelerator} {strategy[:3]}"
        precision = str(node.pop("precision", None)).partition("-")[0]
        chosen = {
            "device": _DEVICES.get(device, device),
            "precision": _PRECISIONS.get(precision, "fp32"),
        }
        if (
            precision not in _PRECISIONS
            or not (CONF_DIR / f"device/{chosen['device']}.yaml").is_file()
        ):
            said = (
                f"trainer: accelerator {accelerator}, strategy {strategy}, precision {precision}"
            )
            self._doubt(name, said, "see: assay configs device, and precision")
            chosen["device"] = "auto"
        if (node.get("max_steps") or -1) != -1:
            node["max_epochs"] = node.get("max_epochs") or -1
        for key, value in node.items():
            is_known = key in known and not key.startswith(("_", "profiler"))
            is_devices = key == "devices" and value not in (None, 0, 1, "auto")
            if is_devices or (
                is_known and (value is not None or key == "check_val_every_n_epoch")
            ):
                taken[key] = value
            elif value and not _IGNORED.fullmatch(key):
                hint = f"is not converted; +{group}.{key}=… where it is needed"
                self._doubt(name, f"{group}.{key}={value}", hint)
        return taken, chosen

    def _take_nodes(self, name: str, group: str, nodes: Tree) -> tuple[Tree, Tree]:
        taken = {}
        options = ["default" if group == "callbacks" else "csv"]
        for key, node in nodes.items():
            target = ""
            if isinstance(node, dict):
                target = str(node.get("_target_") or "")
            place, _, kind = target.rpartition(".")
            is_ours = place.partition(".")[0] in self.packages
            if kind == "ModelCheckpoint":
                taken["checkpoint"] = {
                    one: node[one] for one in ("monitor", "mode") if node.get(one)
                }
            elif kind in _LOGGERS:
                options.append(_LOGGERS[kind])
                kept = ("project", "group", "tags")
                taken[_LOGGERS[kind]] = {one: node[one] for one in kept if node.get(one)}
            elif target and _INCLUDED.fullmatch(kind):
                continue
            elif is_ours or re.match(r"(pytorch_)?lightning.*callbacks", place):
                taken[key] = node
            elif target:
                self._doubt(name, f"{group}.{key}: {target}", f"see: assay configs {group}")
        return {key: node for key, node in taken.items() if node}, {group: options}

    def _write_experiment(self, name: str, *sources: str) -> None:
        composed = [self._compose(source) for source in sources]
        choices: Tree = {key: option for one, _ in composed for key, option in one.items()}
        parts: Tree = {}
        for group in _PARTS:
            options = choices.pop(group, None)
            options = options if isinstance(options, list) else [options]
            parts[group] = _merge(*(self._compose(f"{group}/{option}")[1] for option in options))
        values = _merge(composed[0][1], parts, *(body for _, body in composed[1:]))
        taken, chosen = self._take(name, {group: values[group] or {} for group in _PARTS})
        title = name.removeprefix("experiment/").replace("/", "_")
        values = {**values, "name": title, **taken}
        tree: Tree = {}
        for group, option in choices.items():
            place = _place(self.groups.get(group, group), option)
            if f"{place}.yaml" in self.written:
                ours, _, named = place.partition("/")
                chosen[ours] = named
        if missing := [group for group in ("module", "data") if group not in chosen]:
            self.mapped[name] = f"nothing by itself: it chooses no {' and no '.join(missing)}"
            return
        for key, value in values.items():
            ours = self.groups.get(key, key)
            if ours in (*_SAME, *_PARTS, *self.groups.values()) or self._is_read(key):
                if value not in (None, {}):
                    tree |= {ours: value}
            elif key in ("train", "test") and value is False:
                self._doubt(
                    name, f"{key}=False", "assay trains and tests; assay eval RUN tests alone"
                )
            elif value and not _IGNORED.fullmatch(key):
                self._doubt(
                    name,
                    f"{key}={value}",
                    "the code that called the trainer used it; assay does not",
                )
        path = _place("experiment", name.removeprefix("experiment/"))
        own = {
            f"/{key}": option for key, option in chosen.items() if not (CONF_DIR / key).is_dir()
        }
        over = {
            f"override /{key}": option for key, option in chosen.items() if f"/{key}" not in own
        }
        items = [{key: option} for key, option in (own | over).items()]
        text = f"# @package _global_\n# From {name}.yaml.\n{_dump({'defaults': items, **tree})}"
        self.written[f"{path}.yaml"] = self._rename(text)
        self.experiments.append(path.removeprefix("experiment/"))
        self.mapped[name] = f"conf/{path}.yaml"
