"""What a hostile case is, and how its files are written."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.check.hostile.payloads import MARKER, TOUCH, call

QUICK = ("debug=one_batch", "device=cpu", "callbacks=[]", "hydra.run.dir=run")
SYSTEM = call("os.system", TOUCH)
FILE = call("logging.FileHandler", MARKER)
INNER = {"_target_": "os.system", "_args_": [TOUCH]}
IN_WORDS = "{_target_:os.system,_args_:[" + TOUCH + "]}"
"""The same node in the grammar of a resolver's arguments."""


@dataclass(frozen=True)
class Case:
    """One attack.

    Attributes:
        name: Its kind and its own name.
        typed: Words after `assay train`; for `load` and `resume`, the run or sweep directory.
        files: In its folder, beside those of every case.
        verb: `train`, `resume`, or `load` for `assay.load`.
        environment: Variables that are set.
        trusted: Modules that it may import: the user trusts them.
    """

    name: str
    typed: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    verb: str = "train"
    environment: dict[str, str] = field(default_factory=dict)
    trusted: tuple[str, ...] = ()


LINEAR: list[Any] = [
    {"_target_": "torch.nn.Flatten"},
    {"_target_": "torch.nn.Linear", "in_features": 64, "out_features": 10},
]


def yaml(node: Any) -> str:
    return json.dumps(node)  # which is YAML


def put(key: str, node: Any) -> dict[str, Any]:
    """The tree with one node at a full key."""
    tree: Any = node
    for part in reversed(key.split(".")):
        tree = {part: tree}
    return dict(tree)


def experiment(name: str, tree: dict[str, Any] | str, *typed: str, **more: Any) -> Case:
    text = tree if isinstance(tree, str) else yaml(tree)
    files = {"conf/experiment/evil.yaml": f"# @package _global_\n{text}\n", **more.pop("files", {})}
    return Case(name, (*QUICK, "experiment=evil", *typed), files, **more)


def run_directory(model: Any, checkpoint: str = "!torch", **more: Any) -> dict[str, str]:
    config = {"seed": 0, "model": model, "trainer": {"_target_": "lightning.Trainer"}, **more}
    return {
        "evil_run/config.yaml": yaml(config),
        "evil_run/record.json": json.dumps({"status": "finished", "schema": 1}),
        "evil_run/checkpoints/best.ckpt": checkpoint,
        "evil_run/checkpoints/last.ckpt": checkpoint,
    }
