"""The line of somebody's own code that an exception came from."""

from __future__ import annotations

import importlib.util
import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from assay.errors import ConfigError, DataError, check_numbers, describe_error, user_frame

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def test_a_config_error_names_key_and_file() -> None:
    error = ConfigError("is wrong", key="optimizer.lr", file="sgd.yaml", hint="optimizer.lr=0.1")
    assert error.message == "optimizer.lr: is wrong (sgd.yaml)"
    assert (error.key, error.file, error.hint) == ("optimizer.lr", "sgd.yaml", "optimizer.lr=0.1")
    assert ConfigError("is wrong").message == "is wrong"


def test_comes_back_whole_from_a_worker_process() -> None:
    error = DataError("no", hint="do this")
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - what a worker process does with an exception
    assert (type(back), back.message) == (DataError, "no")


SOURCE = """
import json
import torch

class Net(torch.nn.Module):
    def forward(self, inputs):
        return torch.nn.functional.linear(inputs, torch.zeros(3, 5))

class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"a": 1}["label"]

def collate(samples):
    return json.loads("no json")

def wrapped():
    try:
        Net()(torch.zeros(2, 4))
    except RuntimeError as error:
        raise ValueError("of a library") from error
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "theirs.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("theirs", tmp_path / "theirs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def raised(call: Any) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_innermost_line_of_their_own(theirs: ModuleType) -> None:
    error = raised(lambda: theirs.Net()(torch.zeros(2, 4)))
    assert user_frame(error) == "theirs.py:7, in forward"
    assert describe_error(error).startswith("RuntimeError: ")
    assert user_frame(raised(theirs.wrapped)) == "theirs.py:7, in forward"


@pytest.mark.parametrize("workers", [0, 1])
def test_in_a_collate(theirs: ModuleType, workers: int) -> None:
    numbers: Any = [1, 2]
    loader = DataLoader(numbers, collate_fn=theirs.collate, num_workers=workers)
    error = raised(lambda: next(iter(loader)))
    assert describe_error(error).endswith("(theirs.py:17, in collate)")
    assert describe_error(error).startswith("JSONDecodeError: Expecting value")


def test_what_is_not_theirs_names_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "assay.errors.is_users_own", lambda file: "/json/" not in file and "/tests/" not in file
    )
    error = raised(lambda: json.loads("{"))
    assert user_frame(error) == ""
    assert describe_error(error).startswith("JSONDecodeError: Expecting property name")
    assert describe_error(ValueError()) == "ValueError"


@pytest.mark.parametrize("number", [3, 3.0, np.int64(3), np.float32(3), True, None])
def test_numbers_of_any_type_are_numbers(number: Any) -> None:
    check_numbers("[1, inf)", size=number)
    check_numbers("[1, inf)", sizes=[number, number])


@pytest.mark.parametrize("number", [0, np.int64(0), "3", float("nan"), [3, 0]])
def test_what_is_outside_of_an_interval_is_refused(number: Any) -> None:
    with pytest.raises(ValueError, match=r"^size=.*: expected a number >= 1$"):
        check_numbers("[1, inf)", size=number)
