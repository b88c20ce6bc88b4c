from __future__ import annotations

import pickle

from assay.errors import ConfigError, DataError


def test_a_config_error_names_key_and_file() -> None:
    error = ConfigError("is wrong", key="optimizer.lr", file="sgd.yaml", hint="optimizer.lr=0.1")
    assert error.message == "optimizer.lr: is wrong (sgd.yaml)"
    assert (error.key, error.file, error.hint) == ("optimizer.lr", "sgd.yaml", "optimizer.lr=0.1")
    assert ConfigError("is wrong").message == "is wrong"


def test_comes_back_whole_from_a_worker_process() -> None:
    error = DataError("no", hint="do this")
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - what a worker process does with an exception
    assert (type(back), back.message) == (DataError, "no")
