"""What a config loader without any judgement does with a node: it proves that a case is a real attack.

`python naive.py FOLDER`: calls every payload, each in a folder of its own, and prints which of them left
its marker, called by name alone and called by Hydra's own `instantiate`.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf
from tests.check.hostile.folder import fill
from tests.check.hostile.payloads import ALL, IMPORT_MODULE, MARKER


def locate(path: str) -> Any:
    parts = path.split(".")
    found: Any = importlib.import_module(parts[0])
    for index, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[:index]))
        found = getattr(found, part)
    return found


def make(node: Any) -> Any:
    """A node by the few rules that every such loader has."""
    if isinstance(node, list):
        return [make(one) for one in node]
    if not isinstance(node, dict) or "_target_" not in node:
        return {key: make(value) for key, value in node.items()} if isinstance(node, dict) else node
    inner = (
        node if node.get("_recursive_") is False else {k: make(v) for k, v in node.items() if k != "_target_"}
    )
    plain = {key: value for key, value in inner.items() if not key.startswith("_")}
    called = partial(locate(node["_target_"]), *inner.get("_args_", []), **plain)
    return called if node.get("_partial_") else called()


def left_a_marker(folder: Path, how: Any, node: Any) -> bool:
    fill(folder, {})
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.modules.pop(IMPORT_MODULE, None)
    importlib.invalidate_caches()
    sys.path_importer_cache.clear()
    try:
        how(node)
    except BaseException as error:
        logging.getLogger("naive").debug("%r", error)
    finally:
        sys.path.remove(str(folder))
    return any(path.name.startswith(MARKER) for path in folder.iterdir())


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    found = {
        name: (
            left_a_marker(folder / f"naive-{name.replace('/', '-')}", make, node),
            left_a_marker(
                folder / f"hydra-{name.replace('/', '-')}",
                lambda one: instantiate(OmegaConf.create(one), _convert_="all"),
                node,
            ),
        )
        for name, node in ALL.items()
    }
    sys.stdout.write(f"\n{json.dumps(found)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
