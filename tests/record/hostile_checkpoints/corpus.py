"""Checkpoints that somebody else made. Each that runs anything leaves MARKER in the current directory."""

import builtins
import io
import logging
import marshal
import operator
import os
import pickle
import runpy
import shutil
import sqlite3
import struct
import subprocess
import tarfile
import timeit
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import hydra.utils
import numpy as np
import torch

from assay.files.atomic import write_text

MARKER = "MARKER"
CODE = f"open({MARKER!r}, 'w').close()"
LARGE = 300_000_000
"""Bytes that a bomb unpacks to; refusing it must take far less."""

Fate = Literal["refused", "unfit", "harmless"]
"""Not unpickled or not to the end; read, but no weights of the model; loaded, with nothing run."""


@dataclass(frozen=True)
class Case:
    """A checkpoint file.

    Attributes:
        name: For messages.
        make: Its bytes.
        fate: What becomes of it.
    """

    name: str
    make: Callable[[], bytes]
    fate: Fate = "refused"


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
    "os.popen": (os.popen, f"touch {MARKER}; echo"),
    "os.open": (os.open, MARKER, os.O_CREAT),
    "subprocess.call": (subprocess.call, ["touch", MARKER]),
    "subprocess.check_output": (subprocess.check_output, ["touch", MARKER]),
    "subprocess.Popen": (subprocess.Popen, ["mkdir", MARKER]),
    "builtins.eval": (builtins.eval, CODE),
    "builtins.exec": (builtins.exec, CODE),
    "builtins.open": (builtins.open, MARKER, "w"),
    "builtins.map": (list, Call(map, os.mkdir, [MARKER])),
    "operator.methodcaller": (operator.methodcaller("touch"), Path(MARKER)),
    "pathlib.Path.touch": (Path.touch, Path(MARKER)),
    "functools.partial": (partial(os.mkdir, MARKER),),
    "timeit.timeit": (timeit.timeit, CODE, "pass", timeit.default_timer, 1),
    "runpy.run_path": (runpy.run_path, "evil.py"),
    "shutil.copy": (shutil.copy, "evil.py", MARKER),
    "sqlite3.connect": (sqlite3.connect, MARKER),
    "logging.FileHandler": (logging.FileHandler, MARKER),
    "zipfile.ZipFile": (zipfile.ZipFile, MARKER, "w"),
    "pickle.loads": (pickle.loads, pickle.dumps(Call(os.mkdir, MARKER))),
    "marshal.loads": (builtins.eval, Call(marshal.loads, marshal.dumps(compile(CODE, "a", "exec")))),
    "torch.save": (torch.save, 1, MARKER),
    "assay": (write_text, Path(MARKER), "x"),
    "numpy.savetxt": (np.savetxt, MARKER, [1.0]),
    "numpy.memmap": (np.memmap, MARKER, "uint8", "w+", 0, (1,)),
    "hydra.utils.instantiate": (hydra.utils.instantiate, {"_target_": "os.mkdir", "path": MARKER}),
    "hydra.utils.call": (hydra.utils.call, {"_target_": "builtins.open", "_args_": [MARKER, "w"]}),
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


def tensor(
    size: bytes, stride: bytes, *, offset: bytes = b"K\x00", count: bytes = b"K\x10", at: str = "cpu"
) -> bytes:
    """A tensor of 16 floats, or what claims to be one."""
    storage = b"(" + text("storage") + name("torch.FloatStorage") + text("0") + text(at) + count + b"tQ"
    rest = b"\x89" + name("collections.OrderedDict") + b")R"
    return name("torch._utils._rebuild_tensor_v2") + b"(" + storage + offset + size + stride + rest + b"tR"


def long(value: int) -> bytes:
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def state(value: bytes) -> bytes:
    return b"}" + text("model.weight") + value + b"s"


MKDIR = name("posix.mkdir") + text(MARKER)
OPCODES: dict[str, Callable[[], bytes]] = {
    "reduce": opcodes(MKDIR + b"\x85R"),
    "inst": opcodes(b"(" + text(MARKER) + b"iposix\nmkdir\n"),
    "obj": opcodes(b"(" + name("sqlite3.connect") + text(MARKER) + b"o"),
    "newobj": opcodes(name("zipfile.ZipFile") + b"(" + text(MARKER) + text("w") + b"t\x81"),
    "stack_global": opcodes(text("posix") + text("mkdir") + b"\x93" + text(MARKER) + b"\x85R"),
    "memo": opcodes(name("posix.mkdir") + b"q\x01" + text(MARKER) + b"\x85q\x020h\x01h\x02R"),
    "extension": opcodes(b"\x82\x01" + text(MARKER) + b"\x85R"),
    "key": opcodes(b"}" + MKDIR + b"\x85RK\x01s"),
    "build": opcodes(name("collections.OrderedDict") + b")R}" + text("a") + MKDIR + b"\x85Rsb"),
    "parameter": opcodes(name("torch._utils._rebuild_parameter") + b"(" + MKDIR + b"\x85R\x89}tR"),
    "type_v2": opcodes(
        name("torch._tensor._rebuild_from_type_v2") + b"(" + name("posix.mkdir"),
        name("torch.Tensor") + text(MARKER) + b"\x85}tR",
    ),
    "persistent": opcodes(b"(" + text("module") + name("posix.mkdir") + text(MARKER) + b"tQ"),
    "safe name, then ours": opcodes(
        name("torch.Tensor") + text("__init__") + b"}" + name("os.mkdir") + b"sb"
    ),
    "encode": opcodes(name("codecs.decode") + text(CODE) + text("rot13") + b"\x86R"),
    "bytearray": opcodes(name("builtins.bytearray") + long(LARGE) + b"\x85R"),
    "bytearray, remembered": opcodes(name("__builtin__.bytearray") + b"q\x010h\x01" + long(LARGE) + b"\x85R"),
    "tensor of any size": opcodes(name("torch.Tensor") + long(LARGE // 4) + b"\x85R"),
    "no end": lambda: archive(b"\x80\x02}"),
    "nothing": lambda: archive(b""),
    "empty stack": lambda: archive(b"\x80\x02R."),
    "list, not a mapping": lambda: archive(pickle.dumps([1], protocol=2)),
    "protocol 5": lambda: archive(pickle.dumps(checkpoint({"w": Call(os.mkdir, MARKER)}), protocol=5)),
    "protocol 0": lambda: archive(pickle.dumps(checkpoint({"w": Call(os.mkdir, MARKER)}), protocol=0)),
}

FOUR, BIG = b"K\x04", long(10**12)
ONE = b"K\x01\x85"
GOOD_TENSOR = tensor(FOUR + b"\x85", ONE)


def weight(size: bytes, stride: bytes = ONE, **parts: Any) -> Callable[[], bytes]:
    return opcodes(state(tensor(size, stride, **parts)))


TENSORS: dict[str, tuple[Callable[[], bytes], Fate]] = {
    "absurd size": (weight(BIG + b"\x85"), "refused"),
    "absurd size, stride 0": (weight(BIG + b"\x85", b"K\x00\x85"), "unfit"),
    "product overflows": (weight(BIG + BIG + b"\x86", FOUR + b"K\x01\x86"), "refused"),
    "negative size": (weight(long(-4) + b"\x85"), "refused"),
    "negative stride": (weight(FOUR + b"\x85", long(-1) + b"\x85"), "refused"),
    "negative offset": (weight(FOUR + b"\x85", offset=long(-9)), "refused"),
    "absurd offset": (weight(FOUR + b"\x85", offset=BIG), "refused"),
    "more than is stored": (weight(FOUR + b"\x85", count=BIG), "unfit"),
    "size of text": (weight(text("four")), "refused"),
    "on a device that is not there": (weight(FOUR + b"\x85", at="cuda:99"), "unfit"),
    "of another shape": (weight(FOUR + b"\x85"), "unfit"),
    "a storage that is not there": (opcodes(state(GOOD_TENSOR), storages=()), "refused"),
}


def nested(depth: int) -> bytes:
    return b"]" * depth + b"a" * (depth - 1)


def itself() -> bytes:
    return b"}q\x01" + text("model.weight") + b"h\x01s"


CONTAINERS: dict[str, tuple[Callable[[], bytes], Fate]] = {
    "contains itself": (opcodes(itself()), "unfit"),
    "list in itself": (opcodes(b"]q\x01h\x01a"), "unfit"),
    "nested deep": (opcodes(nested(200_000)), "unfit"),
    "numbers for weights": (opcodes(state(b"K\x01")), "unfit"),
    "names that are none": (opcodes(b"}K\x01K\x01s"), "unfit"),
    "no weights": (lambda: saved({"epoch": 1}), "unfit"),
    "no names": (lambda: saved(checkpoint({})), "unfit"),
    "an ordered mapping with attributes": (
        opcodes(name("collections.OrderedDict") + b")R}" + text("items") + b"K\x01sb"),
        "unfit",
    ),
}


def bomb(method: int, entry: str) -> bytes:
    zeros = bytes(LARGE)
    if entry == "data.pkl":
        return archive(b"\x80\x02" + zeros, method=method)
    return archive(pickle.dumps({}, protocol=2), (zeros,), method=method)


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


GOOD = partial(saved, checkpoint({"w": torch.zeros(4)}))
ROOT = "archive"


def claimed(size: int) -> bytes:
    """The first entry of the list says how large it is, and lies."""
    data = archive(pickle.dumps(checkpoint({}), protocol=2))
    at = data.index(b"PK\1\2")
    return patched(data, at + 20, struct.pack("<2I", size, size))


def overlapping() -> bytes:
    """Forty entries that are one and the same."""
    data = archive(
        pickle.dumps(checkpoint({}), protocol=2),
        (bytes(1000),),
        more=tuple((f"{ROOT}/{i}", b"") for i in range(40)),
    )
    begin, at = data.index(b"PK\1\2"), 0
    where = data.index(f"{ROOT}/data/0".encode()) - 30
    while (at := data.find(b"PK\1\2", max(at + 1, begin))) >= 0:
        data = patched(data, at + 20, struct.pack("<2I", 1000, 1000))
        data = patched(data, at + 42, struct.pack("<I", where))
    return data


def two_ends() -> bytes:
    """Read from the end it is one archive; where its end says that its list begins lies another."""
    good = GOOD()
    at = good.rindex(b"PK\6\6")
    return patched(good, at + 48, struct.pack("<Q", 0))


def folder() -> bytes:
    """The storage of a weight is marked as a folder: PyTorch's reader gives memory that was never written."""
    good = GOOD()
    at = good.rindex(b"archive/data/0") - 46
    return patched(good, at + 38, struct.pack("<I", 0x10))


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        for entry, content in (
            ("storages", pickle.dumps(0, 2) + pickle.dumps(Call(os.mkdir, MARKER), 2)),
            ("tensors", pickle.dumps(0, 2)),
            ("pickle", pickle.dumps(Call(os.mkdir, MARKER), 2)),
        ):
            info = tarfile.TarInfo(entry)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def named(entry: str) -> Callable[[], bytes]:
    return lambda: archive(pickle.dumps(checkpoint({}), protocol=2), more=((entry, b"x"),))


SCRIPT = (("archive/constants.pkl", b"\x80\x02)."), ("archive/code/a.py", CODE.encode()))
FILES: dict[str, Callable[[], bytes]] = {
    "bomb of weights": partial(bomb, zipfile.ZIP_DEFLATED, "data/0"),
    "bomb of a pickle": partial(bomb, zipfile.ZIP_DEFLATED, "data.pkl"),
    "bzip2": lambda: archive(pickle.dumps(checkpoint({}), 2), method=zipfile.ZIP_BZIP2),
    "lzma": lambda: archive(pickle.dumps(checkpoint({}), 2), method=zipfile.ZIP_LZMA),
    "claims gigabytes": partial(claimed, 0xFFFFFFF0),
    "claims more than a zip can say": partial(claimed, 0xFFFFFFFF),
    "overlapping entries": overlapping,
    "two ends": two_ends,
    "a folder for a storage": folder,
    "path above": named("../MARKER"),
    "path above, hidden": named("archive/../../MARKER"),
    "absolute path": named("/tmp/MARKER"),  # noqa: S108 - nobody writes it
    "another folder": named("other/MARKER"),
    "backslash": named("archive/..\\MARKER"),
    "a pickle twice": named("archive/DATA.PKL"),
    "two pickles": named("archive/deeper/data.pkl"),
    "TorchScript": partial(archive, pickle.dumps(Call(os.mkdir, MARKER), 2), more=SCRIPT),
    "something before": lambda: b"#!/bin/sh\ntouch MARKER\n" + GOOD(),
    "something after": lambda: GOOD() + b"more",
    "a comment": lambda: GOOD()[:-2] + b"\4\0text",
    "cut short": lambda: GOOD()[:-30],
    "legacy": lambda: saved(checkpoint({"w": Call(os.mkdir, MARKER)}), _use_new_zipfile_serialization=False),
    "legacy, harmless": lambda: saved(checkpoint({}), _use_new_zipfile_serialization=False),
    "tar": tar,
    "pickle": lambda: pickle.dumps(Call(os.mkdir, MARKER)),
    "NumPy": lambda: b"\x93NUMPY\x01\x00" + pickle.dumps(Call(os.mkdir, MARKER)),
    "empty": lambda: b"",
    "text": CODE.encode,
}  # fmt: skip


def with_hyper_parameters(weights: dict[str, torch.Tensor], **more: Any) -> bytes:
    return saved(checkpoint(OrderedDict(weights)) | more)


CALL = {"_target_": "os.mkdir", "path": MARKER}
LIGHTNINGS = "lightning.pytorch.cli.instantiate_module"
HYPER: dict[str, dict[str, Any]] = {
    "_target_": {"hyper_parameters": CALL},
    "nested _target_": {"hyper_parameters": {"model": {"layers": [{"deep": CALL}]}}},
    "_instantiator": {"hyper_parameters": {"_instantiator": LIGHTNINGS, "class_path": "os.mkdir"}},
    "_class_path": {"hyper_parameters": {"_class_path": "os.mkdir", "path": MARKER}},
    "interpolation": {"hyper_parameters": {"a": "${oc.env:HOME}", "b": "${hydra:run.dir}"}},
    "hparams_type": {"hyper_parameters": CALL, "hparams_type": "os.mkdir"},
    "datamodule": {"datamodule_hyper_parameters": {"_instantiator": "os.mkdir"}},
    "trust": {"trusted_packages": ["os"], "config": {"trusted_packages": ["os"], "model": CALL}},
    "callbacks": {"callbacks": {"os.mkdir": {"_target_": "os.mkdir", "path": MARKER}}},
}


def corpus() -> list[Case]:
    """Every case but those of hyper parameters, which need weights that fit."""
    return [
        *(Case(f"gadget {key}", called(*parts)) for key, parts in GADGETS.items()),
        *(Case(f"opcode {key}", make) for key, make in OPCODES.items()),
        *(Case(f"tensor {key}", make, fate) for key, (make, fate) in TENSORS.items()),
        *(Case(f"container {key}", make, fate) for key, (make, fate) in CONTAINERS.items()),
        *(Case(f"file {key}", make) for key, make in FILES.items()),
    ]
