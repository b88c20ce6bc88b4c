"""Many runs as one table: repetitions, what differs, the best, and what is said of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scipy import stats  # type: ignore[import-untyped]  # scipy has no types
from tests.making_runs import make_run

from assay.errors import AssayError
from assay.record.run_lock import lock_run
from assay.record.run_record import RunRecord
from assay_analysis.comparison import compare, filter_runs, make_ranking
from assay_analysis.journal import Journal
from assay_analysis.read_runs import read_runs
from assay_analysis.run import ConfigValues

if TYPE_CHECKING:
    from pathlib import Path

    from assay_analysis.comparison import Comparison


SCORES = {"0.1": (0.90, 0.92, 0.91), "0.01": (0.95, 0.96, 0.97)}


def seeds(root: Path) -> None:
    """Two learning rates, three seeds each; the better one has other losses."""
    for lr, scores in SCORES.items():
        for seed, score in enumerate(scores):
            metrics = {"val/accuracy": score, "val/loss": 1 - score, "test/accuracy": score - 0.01}
            best = {"monitor": "val/loss", "value": 1 - score, "epoch": 2}
            make_run(root / f"{lr}-{seed}", f"optimizer.lr={lr}", f"seed={seed}", metrics=metrics, best=best)


def compared(root: Path, **options: Any) -> Comparison:
    return compare(read_runs([root]), **options)


def test_seeds_are_one_row_with_scipys_interval(tmp_path: Path) -> None:
    seeds(tmp_path)
    table = compared(tmp_path, sort="test/accuracy")
    assert table.columns == ("optimizer.lr",)
    assert [row.values["optimizer.lr"] for row in table.rows] == ["0.01", "0.1"]
    assert table.best == 0
    score = table.rows[0].scores["test/accuracy"]
    expected = [one - 0.01 for one in SCORES["0.01"]]
    low, high = stats.t.interval(0.95, 2, loc=sum(expected) / 3, scale=stats.sem(expected))
    assert (score.low, score.high, score.n) == pytest.approx((low, high, 3))
    p = stats.ttest_rel(*([one - 0.01 for one in scores] for scores in SCORES.values())).pvalue
    assert table.verdict is not None
    assert table.verdict.p_value == pytest.approx(p)
    assert f"paired t-test, p = {p:.2g}, n = 3 pairs" in table.verdict.sentence
    assert table.verdict.sentence.endswith(": better")
    assert table.notes == ()


def test_of_three_rows_two_of_one_label_are_not_the_two_that_are_judged(tmp_path: Path) -> None:
    for lr, score in {"0.1": 0.5, "0.0049036184": 0.7, "0.004903618": 0.8}.items():
        for seed in range(3):
            metrics = {"val/accuracy": score + seed / 100}
            make_run(tmp_path / f"{lr}-{seed}", f"optimizer.lr={lr}", f"seed={seed}", metrics=metrics)
    table = compared(tmp_path, sort="val/accuracy:max")
    assert table.verdict is not None
    assert (table.verdict.first, table.verdict.second) == ("the best", "the second")
    assert table.verdict.difference == pytest.approx(0.1)


def test_by_default_what_checkpoints_are_kept_by_decides(tmp_path: Path) -> None:
    seeds(tmp_path)
    table = compared(tmp_path)
    assert table.ranking is not None
    assert (table.ranking.metric, table.ranking.direction) == ("val/loss", "min")
    assert table.metrics == ("val/loss", "test/accuracy")
    assert compared(tmp_path, sort="val/loss:max").rows[0].values["optimizer.lr"] == "0.1"


def test_the_same_seed_twice_counts_once_and_is_said(tmp_path: Path) -> None:
    for name, second in (("a", 1), ("b", 2), ("c", 3)):
        started = f"2026-11-22T12:00:0{second}+00:00"
        status = "failed" if name == "c" else "finished"
        metrics = {"val/loss": second / 10}
        make_run(tmp_path / name, "seed=5", metrics=metrics, started=started, status=status)
    table = compared(tmp_path)
    (row,) = table.rows
    assert (row.scores["val/loss"].n, row.scores["val/loss"].mean, row.repetitions) == (1, 0.2, 1)
    assert row.is_complete
    assert any("2 left out" in note for note in table.notes)


def test_states_are_shown_and_never_win(tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(tmp_path / f"good{seed}", f"seed={seed}", metrics={"val/loss": 0.5 + seed / 10})
    part = {"optimizer.lr=0.5": "pruned", "optimizer.lr=0.6": "interrupted", "optimizer.lr=0.7": "running"}
    for number, (typed, status) in enumerate(part.items()):
        make_run(tmp_path / f"part{number}", typed, metrics={"val/loss": 0.01}, status=status)
    make_run(tmp_path / "half0", "optimizer.lr=0.8", metrics={"val/loss": 0.1})
    make_run(tmp_path / "half1", "optimizer.lr=0.8", "seed=1", status="failed", cause="out_of_memory")
    make_run(tmp_path / "dead", "optimizer.lr=0.9", status="running", csv=None)
    make_run(tmp_path / "broken")
    (tmp_path / "broken/record.json").write_text("{}")
    with lock_run(tmp_path / "part2"):
        table = compared(tmp_path)
    assert table.best == 0
    states = {row.values["optimizer.lr"]: row.state for row in table.rows}
    assert states == {
        "0.001": "",
        "0.8": "1 finished, 1 failed (out_of_memory)",
        "0.5": "pruned",
        "0.6": "interrupted",
        "0.7": "running",
        "0.9": "failed (killed)",
    }
    assert [row.values["optimizer.lr"] for row in table.rows][:2] == ["0.001", "0.8"]
    assert table.verdict is not None
    assert table.verdict.sentence.startswith("optimizer.lr=0.001 against optimizer.lr=0.8: ")
    assert [run.path.name for run in table.broken] == ["broken"]


def test_group_by(tmp_path: Path) -> None:
    seeds(tmp_path)
    make_run(tmp_path / "other", "optimizer.lr=0.1", "model=small_cnn", metrics={"val/loss": 0.3})
    table = compared(tmp_path, group_by=["optimizer.lr"])
    assert table.columns == ("optimizer.lr",)
    assert {row.values["optimizer.lr"]: len(row.runs) for row in table.rows} == {"0.1": 4, "0.01": 3}
    assert any("differ in more than their seed" in note for note in table.notes)
    by_both = compared(tmp_path, group_by=["model", "data.batch_size"])
    assert [tuple(row.values.values()) for row in by_both.rows] == [("mlp", "64"), ("small_cnn", "64")]


def test_losses_of_different_kinds_do_not_decide(tmp_path: Path) -> None:
    for number, loss in enumerate(("ce", "focal")):
        metrics = {"val/loss": number, "val/accuracy": number / 2}
        best = {"monitor": "val/loss", "value": number, "epoch": 1}
        make_run(tmp_path / loss, f"loss={loss}", metrics=metrics, best=best)
    table = compared(tmp_path)
    assert table.ranking is not None
    assert table.ranking.metric == "val/accuracy"
    assert any("not the same quantity" in note for note in compared(tmp_path, sort="val/loss").notes)
    for number, kind in enumerate(("Binary", "Multiclass")):
        names = {"f1": "F1Score", "accuracy": "Accuracy", "auroc": "AUROC"}
        node: dict[str, dict[str, str]] = {
            name: {"_target_": f"torchmetrics.classification.{kind}{of}"} for name, of in names.items()
        }
        node["accuracy"]["average"] = "micro"
        config = {"metrics": {"eval": {"metrics": node}}, "spec": {"class_names": ["well", "ill"]}}
        scores = {f"val/{name}": number / 2 for name in names}
        make_run(tmp_path / "2" / kind, config=config, choices={"metrics": kind}, metrics=scores)
    table = compared(tmp_path / "2", sort="val/f1:max")
    assert any("in all rows: val/f1=val/f1 (macro), val/f1 of ill" in note for note in table.notes)
    assert table.best is None
    for name in ("accuracy", "auroc"):
        assert compared(tmp_path / "2", sort=f"val/{name}:max").best == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sort": "val/acuracy"}, "did you mean 'val/accuracy'"),
        ({"metrics": ["val/acuracy"]}, "did you mean 'val/accuracy'"),
        ({"group_by": ["optimizer.lrr"]}, "did you mean 'optimizer.lr'"),
        ({"where": ["modle=mlp"]}, "did you mean 'model'"),
        ({"where": ["nonsense"]}, "is not a comparison"),
    ],
)
def test_a_name_that_no_run_has(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    seeds(tmp_path)
    with pytest.raises(AssayError) as told:
        compared(tmp_path, **options)
    assert message in str(told.value)


def test_each_run_in_a_row_of_its_own_by_when_it_began(tmp_path: Path) -> None:
    for seed in (3, 1, 2):
        make_run(
            tmp_path / str(seed),
            f"seed={seed}",
            metrics={"val/loss": seed},
            started=f"2026-01-0{seed}T00:00:00+00:00",
        )
    table = compared(tmp_path, each=True)
    assert [row.values["seed"] for row in table.rows] == ["1", "2", "3"]
    assert table.verdict is None


@pytest.mark.parametrize(
    ("directions", "asked", "direction", "note"),
    [
        ({"test/x": "max"}, "test/x", "max", ""),
        ({}, "test/x", "", "is not known"),
        ({}, "test/x:min", "min", ""),
        ({"test/x": "max"}, "test/x:min", "min", ""),
        ({"test/mae": "max"}, "test/mae", "max", ""),
    ],
)
def test_the_direction_is_what_the_run_says(
    tmp_path: Path, directions: dict[str, str], asked: str, direction: str, note: str
) -> None:
    make_run(tmp_path / "a", metrics={"test/x": 0.5, "test/mae": 0.5}, directions=directions)
    found = make_ranking(read_runs([tmp_path]), asked)
    assert found is not None
    assert found.direction == direction
    assert note in " ".join(found.notes)


def test_no_score_at_all(tmp_path: Path) -> None:
    make_run(tmp_path / "a", status="failed")
    assert make_ranking(read_runs([tmp_path])) is None
    with pytest.raises(AssayError, match="no run has a metric 'x'"):
        make_ranking(read_runs([tmp_path]), "x")


def metric_of(folder: Path) -> str:
    ranking = make_ranking(read_runs([folder]))
    return f"{ranking.metric}:{ranking.direction}" if ranking else ""


def test_a_sweep_is_ordered_by_its_objective(tmp_path: Path) -> None:
    best = {"monitor": "val/loss", "value": 0.5, "epoch": 1}
    for number in range(2):
        make_run(tmp_path / str(number), metrics={"val/accuracy": 0.5, "val/loss": 0.5}, best=best)
    journal = {"overrides": ["seed=1,2"], "objectives": ["val/accuracy"], "directions": ["maximize"]}
    Journal.create(tmp_path, **journal)
    assert metric_of(tmp_path) == metric_of(tmp_path / "0") == "val/accuracy:max"
    (tmp_path / "journal.jsonl").write_text("nonsense")
    assert metric_of(tmp_path) == "val/loss:min"


RARE_NAMES = ("val/loss", "val/accuracy", "val/auroc", "val/average_precision", "test/accuracy")


def of_rare_class(folder: Path, number: int, balance: str, scores: tuple[float, ...], **spec: Any) -> None:
    """A run on rows of which 6 % are positive, as `data.balance` leaves it."""
    loss = {"_target_": "somewhere.bce", "pos_weight": "balanced" if balance == "weights" else None}
    config = {"spec": {"class_counts": [376, 24], **spec}, "loss": loss}
    best = {"monitor": "val/loss", "value": scores[0], "epoch": 1}
    metrics = dict(zip(RARE_NAMES, scores, strict=True))
    directions = {name: "min" if name.endswith("loss") else "max" for name in RARE_NAMES}
    warnings = ["the model predicts 'no' for each of the 80 test samples"] if balance == "none" else []
    make_run(
        folder / str(number),
        f"data.balance={balance}",
        config=config,
        metrics=metrics,
        best=best,
        directions=directions,
        warnings=warnings,
    )


@pytest.mark.parametrize("is_sweep", [True, False])
@pytest.mark.parametrize("balances", [("none", "weights"), ("none", "sampler")])
def test_for_a_rare_class_average_precision_decides_everywhere(
    tmp_path: Path, balances: tuple[str, str], is_sweep: bool
) -> None:
    """The first run has the better loss and accuracy, and never predicts the rare class."""
    folder = tmp_path / "runs"
    for number, (balance, scores) in enumerate(
        zip(balances, ((0.18, 0.94, 0.98, 0.48, 0.94), (0.70, 0.80, 0.97, 0.61, 0.86)), strict=True)
    ):
        of_rare_class(folder, number, balance, scores)
    if is_sweep:
        typed = [f"data.balance={','.join(balances)}"]
        Journal.create(folder, overrides=typed, objectives=["val/loss"], directions=["minimize"])
    table = compared(folder)
    assert metric_of(folder) == "val/average_precision:max"
    assert table.best_run is not None
    assert table.best_run.path == folder / "1"
    assert any(note.startswith("ordered by val/average_precision: ") for note in table.notes)
    each = compared(folder, each=True)
    assert each.best_run == table.best_run
    assert each.rows[each.best or 0].runs == (table.best_run,)
    asked = compared(folder, sort="val/accuracy")
    assert asked.best_run is not None
    assert asked.best_run.path == folder / "0"
    assert compared(folder, sort="val/loss").best_run is None or balances[1] == "sampler"


def test_of_equal_scores_a_run_of_no_use_is_not_the_best(tmp_path: Path) -> None:
    for number, (balance, loss) in enumerate((("none", 0.2), ("weights", 0.7))):
        of_rare_class(tmp_path, number, balance, (loss, 0.9, 0.9, 0.5, 0.9))
    best = compared(tmp_path).best_run
    assert best is not None
    assert best.path == tmp_path / "1"


def test_a_typed_monitor_or_objective_decides_for_a_rare_class_too(tmp_path: Path) -> None:
    for number, scores in enumerate(((0.18, 0.94, 0.98, 0.48, 0.94), (0.20, 0.80, 0.97, 0.61, 0.86))):
        of_rare_class(tmp_path, number, "none", scores)
        record = RunRecord.load(tmp_path / str(number))
        record.overrides.append("callbacks.checkpoint.monitor=val/loss")
        record.save(tmp_path / str(number))
    assert metric_of(tmp_path) == "val/loss:min"


def test_classes_of_like_size_are_ordered_by_the_monitor(tmp_path: Path) -> None:
    for number, scores in enumerate(((0.18, 0.94, 0.98, 0.48, 0.94), (0.20, 0.80, 0.97, 0.61, 0.86))):
        of_rare_class(tmp_path, number, "sampler", scores, class_counts=[200, 200])
    assert metric_of(tmp_path) == "val/loss:min"


def test_the_best_run_is_of_the_best_configuration_however_it_is_shown(tmp_path: Path) -> None:
    seeds(tmp_path)
    make_run(tmp_path / "lucky", "optimizer.lr=1", "seed=0", metrics={"val/accuracy": 0.99, "val/loss": 0.01})
    make_run(tmp_path / "poor", "optimizer.lr=1", "seed=1", metrics={"val/accuracy": 0.2, "val/loss": 0.9})
    table, each = compared(tmp_path), compared(tmp_path, each=True)
    assert table.best_run is not None
    assert table.best_run == each.best_run
    assert table.best_run.path.name == "0.01-2"


def test_one_name_for_two_tables_is_not_one_data_set(tmp_path: Path) -> None:
    """An experiment file names the table: nothing of it was typed."""
    for number, path in enumerate(("a.csv", "b.csv")):
        data = {"source": {"path": path}, "seed": number}
        make_run(tmp_path / str(number), config={"data": data}, metrics={"val/accuracy": 0.5})
    found = make_ranking(read_runs([tmp_path]))
    assert found is not None
    assert found.data == ("data.source.path=a.csv", "data.source.path=b.csv")
    for number in range(2):
        make_run(
            tmp_path / f"same/{number}",
            config={"data": {"source": {"path": f"{number}.csv"}}},
            metrics={"val/accuracy": 0.5},
            data_sha256="1" * 64,
        )
    same = make_ranking(read_runs([tmp_path / "same"]))
    assert same is not None
    assert same.decides


def of_a_file(place: Path, digest: str, *overrides: str, started: str = "1", **data: Any) -> None:
    """A run on a CSV file that had these contents."""
    node = {"source": {"path": "a.csv"}, "batch_size": 32, **data}
    make_run(
        place,
        *overrides,
        config={"data": node},
        interpolations={"data.batch_size": "${oc.select:spec.batch_size,32}"},
        metrics={"val/accuracy": 0.5},
        data_sha256=digest,
        started=started,
    )


def test_runs_of_a_file_that_was_changed_in_between_do_not_compare(tmp_path: Path) -> None:
    of_a_file(tmp_path / "0", "old", "optimizer.lr=1", seed=0)
    of_a_file(tmp_path / "1", "old", "optimizer.lr=2", seed=1)
    of_a_file(tmp_path / "2", "old", "optimizer.lr=2", "fold=1", split={"fold": 1})
    assert compared(tmp_path).best is not None
    of_a_file(tmp_path / "3", "new", "optimizer.lr=3", seed=2, batch_size=16)
    table = compared(tmp_path)
    assert (table.best, table.best_run) == (None, None)
    assert any("data.source.path=a.csv, changed in between" in note for note in table.notes)
    assert compared(tmp_path, sort="val/accuracy").best is not None


def test_runs_that_were_repeated_after_the_change_compare(tmp_path: Path) -> None:
    for number, lr in enumerate("12"):
        of_a_file(tmp_path / f"old/{number}", "old", f"optimizer.lr={lr}", started="1")
        of_a_file(tmp_path / f"new/{number}", "new", f"optimizer.lr={lr}", started="2")
    assert compared(tmp_path).best is not None


def test_other_samples_that_were_asked_for_are_not_a_change(tmp_path: Path) -> None:
    for fold in range(2):
        of_a_file(tmp_path / str(fold), str(fold), f"fold={fold}", split={"fold": fold})
    of_a_file(tmp_path / "limited", "less", "data.thin_classes=0.5", thin_classes=0.5)
    assert compared(tmp_path).best is not None


@pytest.mark.parametrize(
    ("conditions", "kept"),
    [
        (["model=small_cnn"], ["b"]),
        (["model==small_cnn"], ["b"]),
        (["model!=small_cnn"], ["a", "c"]),
        (["optimizer.lr=1e-1"], ["a"]),
        (["optimizer.lr<0.05"], ["b"]),
        (["data.batch_size=64"], ["a", "b"]),
        (["data.batch_size>=64", "model=mlp"], ["a"]),
        (["val/loss<=0.5"], ["a"]),
        (["test/accuracy > 0.5"], ["b"]),
        (["status=failed"], ["b"]),
        (["seed=1"], ["b"]),
        (["name='digits_mlp'"], ["a", "b"]),
        (["status=broken"], ["c"]),
        (["experiment=null"], ["a", "b"]),
    ],
)
def test_what_is_kept(tmp_path: Path, conditions: list[str], kept: list[str]) -> None:
    make_run(tmp_path / "a", "optimizer.lr=0.1", metrics={"val/loss": 0.5})
    make_run(tmp_path / "b", "model=small_cnn", "seed=1", metrics={"test/accuracy": 0.7}, status="failed")
    make_run(tmp_path / "c")
    (tmp_path / "c/record.json").write_text("")
    runs = read_runs([tmp_path])
    assert [run.path.name for run in filter_runs(runs, conditions, ConfigValues())] == kept
