"""What CMA-ES has learnt, as JSON: Optuna would keep it pickled in the study, whose file may be anybody's."""

from __future__ import annotations

import json
from typing import Any, Final, final

import numpy as np

_KINDS: Final = ("CMA", "CMAwM", "SepCMA")


def without_pickle() -> None:
    """Have Optuna's CMA-ES write and read its state as JSON.

    It calls `pickle.dumps` and `pickle.loads` of its module, and has no place to hand in others.
    """
    from optuna.samplers import _cmaes

    vars(_cmaes)["pickle"] = CmaState


@final
class CmaState:
    """In the place of the module `pickle`: plain numbers, arrays and the optimizers of the package cmaes."""

    @staticmethod
    def dumps(optimizer: Any) -> bytes:
        """Write an optimizer."""
        return json.dumps(_plain(optimizer)).encode()

    @staticmethod
    def loads(state: bytes) -> Any:
        """Read an optimizer; no code of what is read runs.

        Args:
            state: From `dumps`.

        Raises:
            ValueError: It is something else, such as a pickle.
        """
        try:
            optimizer = _built(json.loads(state))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                "the state of CMA-ES in this study was not written by this version of assay"
            ) from error
        if type(optimizer).__name__ not in _KINDS:
            raise ValueError("the study holds no state of CMA-ES")
        return optimizer


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return {"number": value.item(), "dtype": str(value.dtype)}
    if isinstance(value, dict):
        return {"dict": {str(key): _plain(item) for key, item in value.items()}}
    if isinstance(value, list):
        return {"list": [_plain(item) for item in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = type(value).__name__
    if type(value).__module__.partition(".")[0] == "cmaes" and kind in _KINDS:
        return {"kind": kind, "state": _plain(value.__getstate__())}
    raise TypeError(f"CMA-ES keeps a {kind}, which JSON cannot hold")


def _built(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "kind" in value:
        return _optimizer(value["kind"], _built(value["state"]))
    if "dtype" in value and value["dtype"] not in ("float64", "int64", "bool"):
        raise ValueError(f"{value['dtype']!r} is not a type of numbers")
    if "number" in value:
        return np.dtype(value["dtype"]).type(value["number"])
    if "array" in value:
        return np.array(value["array"], dtype=value["dtype"]).reshape(value["shape"])
    if "list" in value:
        return [_built(item) for item in value["list"]]
    return {key: _built(item) for key, item in value["dict"].items()}


def _optimizer(name: str, state: dict[str, Any]) -> Any:
    import cmaes  # type: ignore[import-untyped]  # it has no stubs

    if name not in _KINDS:
        raise ValueError(f"{name!r} is not an optimizer of cmaes")
    kind = getattr(cmaes, name)
    made = kind.__new__(kind)
    getattr(made, "__setstate__", made.__dict__.update)(state)
    return made
