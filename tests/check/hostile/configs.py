"""Hostile configs: in experiments, options, on the command line, behind interpolations."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tests.check.hostile.case import IN_WORDS, LINEAR, QUICK, SYSTEM, Case, experiment, put, yaml
from tests.check.hostile.payloads import ALL, IMPORT_MODULE, MARKER, TOUCH, call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.check.hostile.payloads import Node

SLOTS: tuple[str, ...] = (
    *("model", "loss", "optimizer", "scheduler", "param_groups", "metrics.train", "metrics.eval", "augment"),
    *(
        "callbacks.evil",
        "logger.evil",
        "data",
        "data.source",
        "data.transform",
        "trainer",
        "trainer.profiler",
    ),
    *(
        "trainer.strategy",
        "module",
        "mine",
        "spec",
        "tags",
        "model.widths",
        "optimizer.betas",
        "data.split.val",
    ),
)
ARE_LISTS = ("tags", "model.widths", "optimizer.betas")


def payloads_in_slots() -> Iterator[Case]:
    """Each payload somewhere, every slot in turn; in the tree as it is, partial, in a list, deep inside."""
    shapes: tuple[Callable[[Node], Any], ...] = (
        lambda node: node,
        lambda node: {**node, "_partial_": True},
        lambda node: {"_target_": "torch.nn.Sequential", "_args_": [*LINEAR, node]},
        lambda node: {
            "_target_": "torch.nn.Sequential",
            "_args_": [{"a": [[{"b": node}]]}],
            "_recursive_": False,
        },
        lambda node: {"x": {"y": [1, {"z": {"deep": [{"deeper": node}]}}]}},
    )
    slots = itertools.cycle(SLOTS)
    shaped = itertools.cycle(shapes)
    for name, node in ALL.items():
        slot, shape = next(slots), next(shaped)
        held = [shape(node)] if slot in ARE_LISTS else shape(node)
        yield experiment(f"payload/{name}@{slot}", put(slot, held))


def command_line() -> Iterator[Case]:
    args = f"+{{}}._args_=['{TOUCH}']"
    for slot in ("model", "loss", "trainer", "module", "data.source", "metrics.train"):
        yield Case(f"typed/{slot}", (*QUICK, f"{slot}._target_=os.system", args.format(slot)))
    for slot in ("callbacks.evil", "logger.evil", "augment", "mine", "model.x.y"):
        yield Case(f"typed/new-{slot}", (*QUICK, f"++{slot}={IN_WORDS}"))
    yield Case("typed/new-transform", (*QUICK, f"data.transform.train=[{IN_WORDS}]"))
    yield Case(
        "typed/sweep", (*QUICK, "-m", "loss._target_=torch.nn.MSELoss,os.system", f"+loss._args_=['{TOUCH}']")
    )
    yield Case("typed/sweep-nodes", (*QUICK, "-m", f"++model.x={IN_WORDS},1"))
    yield Case("typed/sweep-last-job", (*QUICK, "-m", "seed=1,2,3", f"model.widths=[1,{IN_WORDS}]"))
    yield Case("typed/cwd-package", (*QUICK, f"model._target_={IMPORT_MODULE}.Net"))
    yield Case("typed/no-dot", (*QUICK, f"model._target_={IMPORT_MODULE}"))
    for odd in (
        "os:system",
        "os.system()",
        "os..system",
        ".os.system",
        "os.system ",
        "ｏｓ.system",
        "/etc/x.Net",
        "__main__.run",
    ):
        yield Case(f"typed/odd-{odd}", (*QUICK, f"model._target_='{odd}'", args.format("model")))


def option_files() -> Iterator[Case]:
    def one(name: str, path: str, text: str, *typed: str, **more: str) -> Case:
        return Case(
            f"option/{name}",
            (*QUICK, *typed),
            {f"conf/{path}": text, **{f"conf/{p}": t for p, t in more.items()}},
        )

    node = yaml(SYSTEM)
    for group in ("model", "loss", "optimizer", "scheduler", "augment", "param_groups", "module", "metrics"):
        plus = "+" if group == "module" else ""
        yield one(f"group-{group}", f"{group}/evil.yaml", f"# Evil.\n{node}\n", f"{plus}{group}=evil")
    yield one(
        "package-callbacks", "callbacks/evil.yaml", f"# @package callbacks.evil\n{node}\n", "callbacks=[evil]"
    )
    yield one("package-logger", "logger/evil.yaml", f"# @package logger.evil\n{node}\n", "logger=[csv,evil]")
    yield one(
        "package-elsewhere", "optimizer/evil.yaml", f"# @package loss\n{node}\n", "+optimizer@loss=evil"
    )
    yield one(
        "package-global",
        "augment/evil.yaml",
        f"# @package _global_\n{yaml(put('model', SYSTEM))}\n",
        "augment=evil",
    )
    yield one(
        "package-in-metrics",
        "model/evil.yaml",
        f"# Evil.\n{node}\n",
        "+model@metrics.train.metrics.evil=evil",
    )
    yield one("package-in-model", "model/evil.yaml", f"# Evil.\n{node}\n", "+model@model.network=evil")
    yield one("package-new", "anything/evil.yaml", f"# Evil.\n{node}\n", "+anything=evil")
    deep = "# @package _global_\ndefaults:\n  - /augment@loss: evil\n"
    yield one(
        "defaults", "experiment/a.yaml", deep, "experiment=a", **{"augment/evil.yaml": f"# Evil.\n{node}\n"}
    )
    over = "# @package _global_\ndefaults:\n  - override /model: evil\n"
    yield one(
        "defaults-override",
        "experiment/a.yaml",
        over,
        "experiment=a",
        **{"model/evil.yaml": f"# Evil.\n{node}\n"},
    )
    chain = {f"debug/d{n}.yaml": f"# @package _global_\ndefaults:\n  - d{n + 1}\n" for n in range(4)}
    last = {"debug/d4.yaml": f"# @package _global_\n{yaml(put('model', SYSTEM))}\n"}
    yield one("defaults-chain", "debug/x.yaml", "# X\nseed: 1\n", "debug=d0", **chain, **last)
    data = "# Evil.\ndefaults:\n  - digits\n  - override /model@_global_.model: evil\n"
    yield one(
        "data-brings-a-model",
        "data/evil.yaml",
        data,
        "data=evil",
        **{"model/evil.yaml": f"# Evil.\n{node}\n"},
    )
    yield one(
        "traversal",
        "debug/x.yaml",
        "# X\nseed: 1\n",
        "experiment=../../evil",
        **{"../evil.yaml": f"# @package _global_\n{yaml(put('model', SYSTEM))}\n"},
    )
    trainer = "# @package trainer\nprofiler: " + node
    yield one("fragment-of-trainer", "device/evil.yaml", f"{trainer}\n", "device=evil")
    yield one(
        "plugin-shadow", "trainer/evil.yaml", f"# Evil.\n{yaml(call('os.system', TOUCH))}\n", "trainer=evil"
    )


def interpolations() -> Iterator[Case]:
    def one(name: str, tree: dict[str, Any], *typed: str, **environment: str) -> Case:
        return experiment(f"interpolation/{name}", tree, *typed, environment=environment)

    model = {"_target_": "${evil}", "_args_": [TOUCH]}
    yield one("plain-key", {"model": model, "evil": "os.system"})
    yield one("relative-key", {"model": {"_target_": "${.name}", "name": "os.system"}})
    yield one(
        "parent-key", {"model": {"x": {"_target_": "${..name}", "_args_": [TOUCH]}, "name": "os.system"}}
    )
    yield one("chain", {"model": model, "evil": "${evil2}", "evil2": "os.system"})
    yield one("concatenation", {"model": {**model, "_target_": "${a}.system"}, "a": "os"})
    yield one("concatenation-letters", {"model": {**model, "_target_": "o${a}"}, "a": "s.system"})
    yield one("environment", {"model": {**model, "_target_": "${oc.env:EVIL}"}}, EVIL="os.system")
    yield one("environment-behind", {"model": model, "evil": "${oc.env:EVIL}"}, EVIL="os.system")
    yield one("decode", {"model": {**model, "_target_": "${oc.decode:${oc.env:EVIL}}"}}, EVIL="os.system")
    yield one("decode-node", {"loss": "${oc.decode:${oc.env:EVIL}}"}, EVIL=IN_WORDS)
    yield one("create-node", {"loss": "${oc.create:" + IN_WORDS + "}"})
    yield one(
        "create-in-list",
        {"model": {"_target_": "torch.nn.Sequential", "_args_": ["${oc.create:" + IN_WORDS + "}"]}},
    )
    yield one("create-deep", {"mine": {"a": {"b": ["${oc.create:{x:[" + IN_WORDS + "]}}"]}}})
    yield one("select", {"model": {**model, "_target_": "${oc.select:evil}"}, "evil": "os.system"})
    yield one("select-default", {"model": {**model, "_target_": "${oc.select:nothing,os.system}"}})
    yield one("select-spec", {"model": {**model, "_target_": "${oc.select:spec.task,os.system}"}})
    yield one("spec-target", {"model": {**model, "_target_": "${spec.class_names.0}"}})
    yield one("deprecated", {"model": {**model, "_target_": "${oc.deprecated:evil}"}, "evil": "os.system"})
    yield one("dict-values", {"callbacks": {"evil": "${oc.dict.values:mine}"}, "mine": {"a": SYSTEM}})
    yield one("node", {"loss": "${mine}", "mine": SYSTEM})
    yield one("node-relative", {"model": {"a": "${.b}", "b": SYSTEM}})
    yield one(
        "node-of-lists", {"model": {"_target_": "torch.nn.Sequential", "_args_": "${mine}"}, "mine": [SYSTEM]}
    )
    yield one(
        "nested-key",
        {"model": model, "evil": {"a": "os.system"}, "which": "a"},
        "model._target_='${evil[${which}]}'",
    )
    yield one(
        "resolver-in-key",
        {"model": {**model, "_target_": "${evil.${oc.env:W}}"}, "evil": {"a": "os.system"}},
        W="a",
    )
    yield one("target-of-another", {"model": {**model, "_target_": "${loss._target_}"}, "loss": SYSTEM})
    yield one(
        "escaped",
        {"model": {"_target_": "torch.nn.Sequential", "_args_": ["\\${oc.create:" + IN_WORDS + "}"]}},
    )
    late = "${oc.select:spec.nothing,${oc.create:" + IN_WORDS + "}}"
    yield one("waits-for-the-data", {"model": {"_target_": "torch.nn.Sequential", "_args_": [late]}})
    yield one(
        "waits-for-the-data-in-loss", {"loss": {"_target_": "torch.nn.CrossEntropyLoss", "weight": late}}
    )
    yield one(
        "waits-in-augment",
        {"augment": {"_target_": "torchvision.transforms.v2.Compose", "transforms": [late]}},
    )
    yield one("not-text", {"model": {"_target_": ["os.system"]}})
    yield one("not-text-mapping", {"model": {"_target_": SYSTEM}})
    yield one("number", {"model": {"_target_": 3}})
    classes = "photos/${oc.create:" + IN_WORDS + "}"
    images = {f"{folder}/{n}.png": "!png" for folder in (classes, "photos/b") for n in range(20)}
    typed = ("data=image_folder", "data.source.root=photos", "data.num_workers=0", "data.batch_size=4")
    for where, name in {"list": "${spec.class_names}", "item": "${spec.class_names.0}"}.items():
        model = {"_target_": "torch.nn.Sequential", "_args_": [*LINEAR, name]}
        files = {**images, "conf/model/x.yaml": f"# X.\n{yaml(model)}\n"}
        yield Case(f"interpolation/name-of-a-class-in-the-data-{where}", (*QUICK, *typed, "model=x"), files)


TAGS: dict[str, str] = {
    "apply": f"!!python/object/apply:os.system ['{TOUCH}']",
    "new": "!!python/object/new:os.system ['" + TOUCH + "']",
    "name": "!!python/name:os.system",
    "module": f"!!python/module:{IMPORT_MODULE}",
    "object": f"!!python/object:{IMPORT_MODULE}.Net {{}}",
    "import": f"!!python/name:{IMPORT_MODULE}.Net",
    "state": f"!!python/object/apply:subprocess.check_output [['touch', '{MARKER}']]",
}


def tags() -> Iterator[Case]:
    for name, text in TAGS.items():
        yield experiment(f"tag/experiment-{name}", f"mine: {text}")
        yield Case(
            f"tag/project-{name}",
            QUICK,
            {"conf/project.yaml": f"trusted_packages: {text}\n", "conf/debug/x.yaml": "# X\n"},
        )
        yield Case(
            f"tag/run-{name}", ("evil_run",), {"evil_run/config.yaml": f"model: {text}\n"}, verb="load"
        )
