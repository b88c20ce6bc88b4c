"""Many runs as data frames: `assay.runs` and `assay.curves`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError
from assay.record.runs.config_values import ConfigValues, value_of
from assay.record.runs.curves import read_curves
from assay.record.runs.plain_value import plain_value
from assay.record.runs.read_runs import read_runs
from assay.record.runs.run import is_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from assay.record.runs.run import Run

_FIRST = ("run", "name", "status", "cause", "reason", "seed", "started", "seconds")


def runs(path: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Every run below a folder, one row each.

    Args:
        path: A run, a sweep, a folder of either, or several of these.

    Returns:
        Columns, in this order:

        - `run` (str): the run directory; `name`, `status`, `cause`, `reason` (str); `seed` (Int64); `started`
          (datetime64, UTC); `seconds` (float64). `status` is `finished`, `running`, `failed`, `interrupted`,
          `pruned`, or `broken` where the record cannot be read, and then `reason` says why.
        - the option of each config group, such as `model`; None where the group is left out.
        - each key that was typed for any of the runs, such as `optimizer.lr`: numbers where all values are
          numbers. A run for which it was not typed has the value of its config.
        - `best_epoch` (Int64) and each metric, such as `val/accuracy` (float64): its last value, and of the
          metric that checkpoints are kept by, that of the best checkpoint. NaN where a run has none.

    Raises:
        AssayError: A folder is not there, or holds no run.
    """
    import pandas as pd

    found = read_runs(_listed(path))
    configs = ConfigValues()
    frame = pd.DataFrame({name: [_field(run, name) for run in found] for name in _FIRST})
    frame["seed"] = frame["seed"].astype("Int64")
    frame["started"] = pd.to_datetime(frame["started"], utc=True, errors="coerce")
    columns: dict[str, Any] = {}
    groups = dict.fromkeys(key for run in found for key in run.choices if is_config(key))
    for key in groups:
        columns[key] = [plain_value(run.choices.get(key)) for run in found]
    typed = dict.fromkeys(key for run in found for key in run.typed if is_config(key) and key not in groups)
    for key in typed:
        columns[key] = [plain_value(value_of(run, key, configs)) for run in found]
    columns["best_epoch"] = pd.array([run.best.get("epoch") for run in found], dtype="Int64")
    for metric in dict.fromkeys(
        name for run in found for name in (*run.metrics, run.best.get("monitor")) if name
    ):
        # A module of somebody's own may log a `loss`, which is a group as well.
        name = f"{metric} (metric)" if metric in (*columns, *_FIRST) else metric
        columns[name] = pd.array([run.score(metric) for run in found], dtype="float64")
    return pd.concat([frame, pd.DataFrame(columns, index=frame.index)], axis=1)


def curves(path: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Every value that the runs below a folder have logged, one row each.

    Args:
        path: As for `runs`.

    Returns:
        Columns `run` (category: the run directory), `epoch` (Int64, from 1; NA where a value was logged
        without one), `step` (int64, optimizer steps before it), `metric` (category) and `value` (float64).

    Raises:
        AssayError: A folder is not there, or holds no run.

    Warns:
        UserWarning: The metrics.csv of a run is missing or damaged; its rows are left out.
    """
    import pandas as pd

    parts = list(_parts(read_runs(_listed(path))))
    names = list(dict.fromkeys(metric for _, metric, _ in parts))
    folders = list(dict.fromkeys(run for run, _, _ in parts))
    lengths = [len(curve.values) for _, _, curve in parts]

    def repeated(values: list[str], categories: list[str]) -> Any:
        codes = {name: code for code, name in enumerate(categories)}
        flat = [codes[value] for value, length in zip(values, lengths, strict=True) for _ in range(length)]
        return pd.Categorical.from_codes(flat, categories=pd.Index(categories))

    return pd.DataFrame(
        {
            "run": repeated([run for run, _, _ in parts], folders),
            "epoch": pd.array([one for *_, curve in parts for one in curve.epochs], dtype="Int64"),
            "step": pd.Series([one for *_, curve in parts for one in curve.steps], dtype="int64"),
            "metric": repeated([metric for _, metric, _ in parts], names),
            "value": pd.Series([one for *_, curve in parts for one in curve.values], dtype="float64"),
        }
    )


def _parts(found: list[Run]) -> Iterator[tuple[str, str, Any]]:
    for run in found:
        try:
            own = read_curves(run.path)
        except AssayError as error:
            warnings.warn(f"left out: {error.message}", stacklevel=4)
            continue
        yield from ((str(run.path), metric, curve) for metric, curve in own.items())


def _field(run: Run, name: str) -> Any:
    if name == "run":
        return str(run.path)
    return None if run.status == "broken" and name in ("seed", "started", "seconds") else getattr(run, name)


def _listed(path: str | Path | Iterable[str | Path]) -> list[str | Path]:
    return [path] if isinstance(path, str | Path) else list(path)
