"""Another tool's score on rows of a table: run by `benchmarks/defaults.py --rival NAME=PYTHON`.

PYTHON is the interpreter of an environment of its own, in which `autogluon.tabular[lightgbm]` or `pytabkit`
is installed. Reads one JSON document from standard input (path, target, rows, values, fit, test, seconds,
seed) and prints another (score, seconds). `rows` are those of the file that have a target, and `values` what
assay reads of one that is a number. AutoGluon is given the seconds that `assay train` took; pytabkit's
RealMLP has no such limit and takes its own time.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd


def main() -> None:
    """Fit, predict and print."""
    warnings.simplefilter("ignore")
    name, job = sys.argv[1], json.loads(sys.stdin.read())
    frame = pd.read_csv(job["path"]).iloc[job["rows"]]
    if job["values"]:
        frame[job["target"]] = job["values"]
    fit, test = frame.iloc[job["fit"]], frame.iloc[job["test"]]
    start = time.perf_counter()
    said = (_autogluon if name == "autogluon" else _pytabkit)(job, fit, test.drop(columns=job["target"]))
    truth = test[job["target"]].to_numpy()
    if job["values"]:
        score = 1 - float(((truth - said) ** 2).mean() / truth.var())
    else:
        score = float((truth.astype(str) == np.asarray(said).astype(str)).mean())
    print(json.dumps({"score": score, "seconds": round(time.perf_counter() - start, 1)}))


def _autogluon(job: dict[str, Any], fit: pd.DataFrame, test: pd.DataFrame) -> Any:
    from autogluon.tabular import TabularPredictor  # type: ignore[import-not-found]  # an environment of its own

    with tempfile.TemporaryDirectory() as folder:
        task = "regression" if job["values"] else None
        predictor = TabularPredictor(job["target"], task, path=folder, verbosity=0)
        predictor.fit(fit, time_limit=job["seconds"], num_cpus=1, num_gpus=0)
        return predictor.predict(test).to_numpy()


def _pytabkit(job: dict[str, Any], fit: pd.DataFrame, test: pd.DataFrame) -> Any:
    from pytabkit import RealMLP_TD_S_Classifier, RealMLP_TD_S_Regressor  # type: ignore[import-not-found]  # as above

    kind = RealMLP_TD_S_Regressor if job["values"] else RealMLP_TD_S_Classifier
    model = kind(device="cpu", random_state=job["seed"], n_threads=1)
    texts = [str(column) for column in test if test[column].dtype.kind not in "iufb"]
    fit, test = (part.assign(**{name: part[name].astype(str) for name in texts}) for part in (fit, test))
    numbers = [str(column) for column in test if column not in texts]
    middle = fit[numbers].median()
    fit, test = (
        part.assign(**{name: part[name].fillna(middle[name]) for name in numbers}) for part in (fit, test)
    )
    model.fit(fit.drop(columns=job["target"]), fit[job["target"]].to_numpy(), cat_col_names=texts)
    return model.predict(test)


if __name__ == "__main__":
    main()
