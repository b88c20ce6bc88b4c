"""What a hostile case is, what it calls, and the files that lie in its folder."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from yaml import safe_load as load_yaml

from assay.files.checksum import write_sums

if TYPE_CHECKING:
    from collections.abc import Callable

Node = dict[str, Any]
MARKER = "MARKER"
"""Each case would leave this file in its folder if what it asks for were done."""
TOUCH = f"touch {MARKER}"
CODE = f"open('{MARKER}', 'w').close()"
EVIL = f"{CODE}\nclass Net: ...\ndef run(*a, **k): ...\nx = Net\n"
IMPORTED = "import_evil"
"""A module of the case whose import writes the marker."""
QUICK = ("debug=one_batch", "device=cpu", "callbacks=[]", "hydra.run.dir=run")
IN_WORDS = "{_target_:os.system,_args_:[" + TOUCH + "]}"
"""A node in the grammar of a resolver's arguments."""


def call(target: str, *args: Any, **kwargs: Any) -> Node:
    return {"_target_": target, **({"_args_": list(args)} if args else {}), **kwargs}


SYSTEM, FILE = call("os.system", TOUCH), call("logging.FileHandler", MARKER)
LATER = {**SYSTEM, "_partial_": True}
LINEAR: list[Any] = [call("torch.nn.Flatten"), call("torch.nn.Linear", in_features=64, out_features=10)]
SEQUENTIAL = "torch.nn.Sequential"
GOOD = call(SEQUENTIAL, *LINEAR)


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


NODES: dict[str, dict[str, Any]] = load_yaml(
    (Path(__file__).parent / "nodes.yaml").read_text(encoding="utf-8")
)


class _Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (TOUCH,)


def _saved(save: Callable[[io.BytesIO], None]) -> bytes:
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


KINDS: dict[str, bytes] = {
    "!pickle": pickle.dumps(_Payload()),
    "!torch": _saved(lambda file: torch.save({"state_dict": _Payload()}, file)),
    "!npy": _saved(lambda file: np.save(file, np.array([_Payload()], dtype=object), allow_pickle=True)),
    "!png": _saved(lambda file: Image.new("L", (8, 8)).save(file, "png")),
}
"""Contents that text cannot hold."""
COMMON = {f"{IMPORTED}.py": EVIL, "evil.pt": "!torch", "evil.npy": "!npy", "evil.pkl": "!pickle"}
COMMON["hub/hubconf.py"] = f"{CODE}\ndef evil(): ...\n"


def fill(folder: Path, files: dict[str, str]) -> None:
    """Write a case's files, and those that lie everywhere."""
    for name, text in {**COMMON, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("!link:"):
            path.unlink(missing_ok=True)
            path.symlink_to(text.removeprefix("!link:"))
            continue
        content = KINDS.get(text) or text.encode()
        path.write_bytes(content)
        if path.suffix == ".ckpt":  # so that it is not taken for a damaged one
            write_sums(path, [hashlib.sha256(content).hexdigest()])
