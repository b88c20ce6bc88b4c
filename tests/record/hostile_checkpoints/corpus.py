"""Checkpoints that somebody else made. Each that runs anything leaves MARKER in the current directory."""

import builtins
import io
import os
import pickle
import runpy
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hydra.utils
import torch

from assay.files.atomic import write_text

MARKER = "MARKER"
CODE = f"open({MARKER!r}, 'w').close()"


@dataclass(frozen=True)
class Case:
    """A checkpoint file.

    Attributes:
        name: For messages.
        make: Its bytes.
    """

    name: str
    make: Callable[[], bytes]


class Call:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: Any, state: Any = None) -> None:
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> Any:
        return self.parts


def archive(
    pickled: bytes,
    storages: tuple[bytes, ...] = (),
    *,
    method: int = zipfile.ZIP_STORED,
    root: str = "archive",
    more: tuple[tuple[str, bytes], ...] = (),
) -> bytes:
    """A zip file as `torch.save` lays it out."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr(f"{root}/data.pkl", pickled)
        file.writestr(f"{root}/byteorder", b"little")
        for index, storage in enumerate(storages):
            file.writestr(f"{root}/data/{index}", storage)
        for name, content in more:
            file.writestr(name, content)
        file.writestr(f"{root}/version", b"3\n")
    return buffer.getvalue()


def checkpoint(value: Any) -> dict[str, Any]:
    return {"epoch": 0, "global_step": 1, "state_dict": value}


def saved(value: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def called(function: Any, *arguments: Any) -> Callable[[], bytes]:
    """A checkpoint that calls something when it is unpickled."""
    return lambda: saved(checkpoint({"w": Call(function, *arguments)}))


GADGETS: dict[str, tuple[Any, ...]] = {
    "os.mkdir": (os.mkdir, MARKER),
    "os.system": (os.system, f"touch {MARKER}"),
    "builtins.eval": (builtins.eval, CODE),
    "builtins.open": (builtins.open, MARKER, "w"),
    "runpy.run_path": (runpy.run_path, "evil.py"),
    "pickle.loads": (pickle.loads, pickle.dumps(Call(os.mkdir, MARKER))),
    "assay": (write_text, Path(MARKER), "x"),
    "hydra.utils.instantiate": (hydra.utils.instantiate, {"_target_": "os.mkdir", "path": MARKER}),
}


def opcodes(*parts: bytes, storages: tuple[bytes, ...] = (bytes(64),)) -> Callable[[], bytes]:
    """A checkpoint whose `state_dict` is what these opcodes leave."""
    body = b"\x80\x02}(X\x0a\x00\x00\x00state_dict" + b"".join(parts) + b"X\x0b\x00\x00\x00global_stepK\x01u."
    return lambda: archive(body, storages)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def name(full: str) -> bytes:
    module, _, last = full.rpartition(".")
    return f"c{module}\n{last}\n".encode()


MKDIR = name("posix.mkdir") + text(MARKER)
OPCODES: dict[str, Callable[[], bytes]] = {
    "reduce": opcodes(MKDIR + b"\x85R"),
    "newobj": opcodes(name("zipfile.ZipFile") + b"(" + text(MARKER) + text("w") + b"t\x81"),
    "stack_global": opcodes(text("posix") + text("mkdir") + b"\x93" + text(MARKER) + b"\x85R"),
    "build": opcodes(name("collections.OrderedDict") + b")R}" + text("a") + MKDIR + b"\x85Rsb"),
    "parameter": opcodes(name("torch._utils._rebuild_parameter") + b"(" + MKDIR + b"\x85R\x89}tR"),
    "safe name, then ours": opcodes(
        name("torch.Tensor") + text("__init__") + b"}" + name("os.mkdir") + b"sb"
    ),
    "list, not a mapping": lambda: archive(pickle.dumps([1], protocol=2)),
}

GOOD = partial(saved, checkpoint({"w": torch.zeros(4)}))


SCRIPT = (("archive/constants.pkl", b"\x80\x02)."), ("archive/code/a.py", CODE.encode()))
FILES: dict[str, Callable[[], bytes]] = {
    "TorchScript": partial(archive, pickle.dumps(Call(os.mkdir, MARKER), 2), more=SCRIPT),
    "cut short": lambda: GOOD()[:-30],
    "legacy": lambda: saved(checkpoint({"w": Call(os.mkdir, MARKER)}), _use_new_zipfile_serialization=False),
    "legacy, harmless": lambda: saved(checkpoint({}), _use_new_zipfile_serialization=False),
    "pickle": lambda: pickle.dumps(Call(os.mkdir, MARKER)),
    "text": CODE.encode,
}  # fmt: skip


def with_hyper_parameters(weights: dict[str, torch.Tensor], **more: Any) -> bytes:
    return saved(checkpoint(OrderedDict(weights)) | more)


CALL = {"_target_": "os.mkdir", "path": MARKER}
LIGHTNINGS = "lightning.pytorch.cli.instantiate_module"
HYPER: dict[str, dict[str, Any]] = {
    "_target_": {"hyper_parameters": CALL},
    "_instantiator": {"hyper_parameters": {"_instantiator": LIGHTNINGS, "class_path": "os.mkdir"}},
    "_class_path": {"hyper_parameters": {"_class_path": "os.mkdir", "path": MARKER}},
    "hparams_type": {"hyper_parameters": CALL, "hparams_type": "os.mkdir"},
    "trust": {"trusted_packages": ["os"], "config": {"trusted_packages": ["os"], "model": CALL}},
    "callbacks": {"callbacks": {"os.mkdir": {"_target_": "os.mkdir", "path": MARKER}}},
}


def corpus() -> list[Case]:
    """Every case but those of hyper parameters, which need weights that fit."""
    return [
        *(Case(f"gadget {key}", called(*parts)) for key, parts in GADGETS.items()),
        *(Case(f"opcode {key}", make) for key, make in OPCODES.items()),
        *(Case(f"file {key}", make) for key, make in FILES.items()),
    ]
