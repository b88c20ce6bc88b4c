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

    _cmaes.pickle = CmaState  # type: ignore[attr-defined]  # a module, of which these two functions are used


@final
class CmaState:
    """In the place of the module `pickle`: plain numbers, arrays and the optimizers of the package cmaes."""

    @staticmethod
    def dumps(optimizer: Any) -> bytes:
        """Write an optimizer.

        Args:
            optimizer: Of the package cmaes.
        """
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
        return value.item()
    if isinstance(value, dict):
        return {"dict": {str(key): _plain(one) for key, one in value.items()}}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_plain(one) for one in value]}
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
        import cmaes

        kind = getattr(cmaes, value["kind"]) if value["kind"] in _KINDS else None
        if kind is None:
            raise ValueError(f"{value['kind']!r} is not an optimizer of cmaes")
        made = kind.__new__(kind)
        made.__setstate__(_built(value["state"]))
        return made
    if "array" in value:
        if value["dtype"] not in ("float64", "int64", "bool"):
            raise ValueError(f"{value['dtype']!r} is not a type of numbers")
        return np.array(value["array"], dtype=value["dtype"]).reshape(value["shape"])
    if "tuple" in value:
        return tuple(_built(one) for one in value["tuple"])
    if "list" in value:
        return [_built(one) for one in value["list"]]
    return {key: _built(one) for key, one in value["dict"].items()}
