from __future__ import annotations

import pickle

import pytest

from assay.errors import AssayError, ConfigError, DataError, DeviceError


def test_what_is_printed() -> None:
    assert str(AssayError("no", hint="do this")) == "no\n  → do this"
    assert str(AssayError("no")) == "no"


def test_a_config_error_names_key_and_file() -> None:
    error = ConfigError("is wrong", key="optimizer.lr", file="sgd.yaml", hint="optimizer.lr=0.1")
    assert error.message == "optimizer.lr: is wrong (sgd.yaml)"
    assert (error.key, error.file, error.hint) == ("optimizer.lr", "sgd.yaml", "optimizer.lr=0.1")
    assert ConfigError("is wrong").message == "is wrong"


@pytest.mark.parametrize(
    ("kind", "code"), [(ConfigError, 2), (DataError, 1), (DeviceError, 1), (AssayError, 1)]
)
def test_exit_codes(kind: type[AssayError], code: int) -> None:
    assert kind("x").exit_code == code
    assert isinstance(kind("x"), AssayError)


def test_comes_back_whole_from_a_worker_process() -> None:
    error = DataError("no", hint="do this")
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - what a worker process does with an exception
    assert (type(back), back.message) == (DataError, "no")
