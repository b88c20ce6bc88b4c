"""Many runs as one table: repetitions, what differs, the best, and what is said of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scipy import stats  # type: ignore[import-untyped]  # scipy has no types
from tests.making_runs import make_run

from assay.analysis.comparison import compare
from assay.analysis.read_runs import read_runs
from assay.errors import AssayError
from assay.record.run_lock import writing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained

    from assay.analysis.comparison import Comparison

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
    p = stats.ttest_ind(
        *([one - 0.01 for one in scores] for scores in SCORES.values()), equal_var=False
    ).pvalue
    assert table.verdict.p_value == pytest.approx(p)
    assert f"Welch's t-test, p = {p:.2g}" in table.verdict.text
    assert "more than noise" in table.verdict.text
    assert table.notes == ()


def test_by_default_what_checkpoints_are_kept_by_decides(tmp_path: Path) -> None:
    seeds(tmp_path)
    table = compared(tmp_path)
    assert table.ranking is not None
    assert (table.ranking.metric, table.ranking.direction) == ("val/loss", "min")
    assert table.metrics == ("val/loss", "test/accuracy")
    assert compared(tmp_path, sort="val/loss:max").rows[0].values["optimizer.lr"] == "0.1"


def test_one_seed_is_too_few(tmp_path: Path) -> None:
    seeds(tmp_path)
    table = compared(tmp_path, where=["seed=1"])
    assert [row.scores["val/loss"].n for row in table.rows] == [1, 1]
    assert table.verdict.p_value is None
    assert "n too small to say" in table.verdict.text


def test_what_was_typed_otherwise_and_means_the_same_is_one_row(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "optimizer.lr=0.001", metrics={"val/loss": 0.5})
    make_run(tmp_path / "b", "seed=1", metrics={"val/loss": 0.6})
    make_run(tmp_path / "c", "optimizer.lr=1e-3", "seed=2", metrics={"val/loss": 0.7})
    (row,) = compared(tmp_path).rows
    assert row.scores["val/loss"].n == 3


def test_what_was_not_typed_comes_from_the_config(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "optimizer.lr=0.1", metrics={"val/loss": 0.5})
    make_run(tmp_path / "b", metrics={"val/loss": 0.6})
    make_run(tmp_path / "c", "data.batch_size=32", metrics={"val/loss": 0.7})
    table = compared(tmp_path)
    assert [dict(row.values) for row in table.rows] == [
        {"optimizer.lr": "0.1", "data.batch_size": "64"},
        {"optimizer.lr": "0.001", "data.batch_size": "64"},
        {"optimizer.lr": "0.001", "data.batch_size": "32"},
    ]


def test_configs_that_differ_in_nothing_typed_are_told_apart(tmp_path: Path) -> None:
    make_run(tmp_path / "a", metrics={"val/loss": 0.5})
    make_run(
        tmp_path / "b", metrics={"val/loss": 0.6}, config={"trainer": {"max_epochs": 7, "extra": [1, 2]}}
    )
    table = compared(tmp_path)
    assert [dict(row.values) for row in table.rows] == [
        {"trainer.max_epochs": "5", "trainer.extra": None},
        {"trainer.max_epochs": "7", "trainer.extra": "[1,2]"},
    ]
    (tmp_path / "b/config.yaml").unlink()
    table = compared(tmp_path)
    assert len({row.values["config"] for row in table.rows}) == 2, (
        "by their fingerprints, where a config is gone"
    )


def test_the_same_seed_twice_counts_once_and_is_said(tmp_path: Path) -> None:
    for name, second in (("a", 1), ("b", 2), ("c", 3)):
        started = f"2026-11-22T12:00:0{second}+00:00"
        status = "failed" if name == "c" else "finished"
        metrics = {"val/loss": second / 10}
        make_run(tmp_path / name, "seed=5", metrics=metrics, started=started, status=status)
    table = compared(tmp_path)
    (row,) = table.rows
    assert (row.scores["val/loss"].n, row.scores["val/loss"].mean, row.repetitions) == (1, 0.2, 1)
    assert row.whole
    assert any("2 left out" in note for note in table.notes)


def test_other_code_and_other_data_are_said(tmp_path: Path) -> None:
    make_run(tmp_path / "a", metrics={"val/loss": 0.5}, git={"commit": "a"}, data_sha256="1")
    make_run(tmp_path / "b", metrics={"val/loss": 0.5}, git={"commit": "b"}, data_sha256="2")
    notes = " ".join(compared(tmp_path).notes)
    assert "different code" in notes
    assert "the data have changed" in notes


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
    with writing(tmp_path / "part2"):
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
    assert "behind the second, which has not finished" in table.verdict.text
    assert [run.path.name for run in table.broken] == ["broken"]


def test_scores_that_are_nan_do_not_count_and_that_is_said(tmp_path: Path) -> None:
    for seed, score in enumerate((0.5, float("nan"), 0.7)):
        make_run(tmp_path / str(seed), f"seed={seed}", metrics={"val/loss": score})
    table = compared(tmp_path)
    assert table.rows[0].scores["val/loss"].n == 2
    assert any("nan" in note for note in table.notes)


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sort": "val/acuracy"}, "did you mean 'val/accuracy'"),
        ({"metrics": ["val/acuracy"]}, "did you mean 'val/accuracy'"),
        ({"group_by": ["optimizer.lrr"]}, "did you mean 'optimizer.lr'"),
        ({"where": ["modle=mlp"]}, "did you mean 'model'"),
        ({"where": ["nonsense"]}, "is not a condition"),
    ],
)
def test_a_name_that_no_run_has(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    seeds(tmp_path)
    with pytest.raises(AssayError) as told:
        compared(tmp_path, **options)
    assert message in str(told.value)


def test_runs_of_different_tasks_lie_beside_each_other(tmp_path: Path) -> None:
    make_run(tmp_path / "a", metrics={"val/loss": 0.5, "test/accuracy": 0.5})
    make_run(tmp_path / "b", "data=diabetes", metrics={"val/loss": 0.5, "test/mae": 40.0})
    table = compared(tmp_path)
    assert set(table.metrics) >= {"test/accuracy", "test/mae"}
    assert any("different data" in note for note in table.notes)


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
    assert table.verdict.text == ""
    assert [row.values["seed"] for row in compared(tmp_path, each=True, sort="seed").rows] == ["1", "2", "3"]


def test_a_real_run(digits_run: Trained) -> None:
    table = compared(digits_run.run_dir)
    assert table.ranking is not None
    assert table.ranking.metric == "val/loss"
    assert table.best == 0
    assert table.rows[0].scores["test/accuracy"].mean == digits_run.record["metrics"]["test/accuracy"]
