"""Studies over plain functions: what is asked and told, and where it is kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from optuna.trial import TrialState
from tests.sweep.search.studies import (
    SAMPLERS,
    SPACE,
    Line,
    check_whole,
    done,
    drive,
    ended,
    loss,
    run,
    sampler,
    search,
)

from assay.errors import AssayError, ConfigError
from assay.record.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.record.outcome import Status

# -- searching -----------------------------------------------------------------------------------------------


@pytest.mark.always("NSGAIISampler", "QMCSampler")
@pytest.mark.parametrize("name", SAMPLERS)
def test_each_sampler_proposes_the_trials_asked_for(name: str, tmp_path: Path) -> None:
    journal: list[Line] = []
    one = run(tmp_path / "a sweep #1 %?", journal, at_once=3, sampler=sampler(name), num_trials=6)
    assert len(journal) == one.total == 6
    assert [trial.state for trial in one.study.get_trials()] == [TrialState.COMPLETE] * 6
    assert len({entry[1] for entry in journal}) == 6
    assert (tmp_path / "a sweep #1 %?" / "study.db").is_file()
    for token, overrides, _, scores in journal:
        trial = one.study.get_trials()[int(token)]
        assert trial.values == scores
        assert overrides == (
            f"lr={trial.params['lr']!r}",
            f"width={trial.params['width']}",
            f"opt={trial.params['opt']}",
        )
    one.close()


@pytest.mark.always("TPESampler")
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_serial_study_is_reproduced(name: str, tmp_path: Path) -> None:
    first: list[Line] = []
    second: list[Line] = []
    other: list[Line] = []
    run(tmp_path / "1", first, sampler=sampler(name), num_trials=6).close()
    run(tmp_path / "2", second, sampler=sampler(name), num_trials=6).close()
    run(tmp_path / "3", other, sampler=sampler(name), num_trials=2, seed=1).close()
    assert first == second
    assert first[:2] != other


def test_tpe_finds_more_than_chance(tmp_path: Path) -> None:
    best = {}
    for name in ("TPESampler", "RandomSampler"):
        one = run(tmp_path / name, sampler=sampler(name), num_trials=20)
        best[name] = one.study.best_value
        one.close()
    assert best["TPESampler"] < 0.5 * best["RandomSampler"]


def test_a_grid_has_every_point_once(tmp_path: Path) -> None:
    journal: list[Line] = []
    space = {"lr": "range(0.1, 0.45, 0.1)", "width": "int(interval(1, 2))", "opt": "sgd,adamw"}
    one = run(tmp_path, journal, sampler=sampler("GridSampler"), params=space, num_trials=100, at_once=4)
    assert one.total == len(journal) == 16
    assert len({entry[1] for entry in journal}) == 16
    assert {entry[1][0] for entry in journal} == {"lr=0.1", "lr=0.2", "lr=0.3", "lr=0.4"}
    one.close()


def test_failures_count_and_teach_nothing(tmp_path: Path) -> None:
    def end(overrides: Sequence[str]) -> tuple[Outcome, list[float] | None]:
        if "opt=sgd" in overrides:
            return ended("failed", cause="exception"), None
        return Outcome("finished"), [math.nan if "width=3" in overrides else loss(overrides)]

    one = search(tmp_path, params={**SPACE, "width": "range(1, 5)"}, num_trials=12)
    journal: list[Line] = []
    drive(one, journal, end)
    states = [trial.state for trial in one.study.get_trials()]
    bad = [one for one in journal if one[3] is None or math.isnan(one[3][0])]
    assert len(states) == 12
    assert states.count(TrialState.FAIL) == len(bad) > 0
    assert states.count(TrialState.COMPLETE) == 12 - len(bad) > 0
    one.close()


def test_several_objectives(tmp_path: Path) -> None:
    one = search(
        tmp_path,
        objective=["val/loss", "val/accuracy"],
        direction=["min", "max"],
        sampler=sampler("NSGAIISampler"),
        num_trials=12,
    )
    drive(
        one,
        [],
        lambda overrides: (Outcome("finished"), [loss(overrides), -float(overrides[0][3:])]),
        at_once=2,
    )
    assert [direction.name for direction in one.study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert all(len(trial.values) == 2 for trial in one.study.get_trials())
    assert 1 <= len(one.study.best_trials) <= 12
    one.close()


# -- seeds ---------------------------------------------------------------------------------------------------


def test_a_trial_is_one_job_a_seed_and_its_value_their_mean(tmp_path: Path) -> None:
    one = search(tmp_path, ["seed=0,1,2"], num_trials=4)
    journal: list[Line] = []
    drive(one, journal, at_once=3)
    assert len(journal) == one.total == 12
    for trial in one.study.get_trials():
        mine = [entry for entry in journal if entry[0].startswith(f"{trial.number}/")]
        assert [entry[1][-1] for entry in mine] == ["seed=0", "seed=1", "seed=2"]
        assert len({entry[1][:-1] for entry in mine}) == 1
        assert trial.value == pytest.approx(sum(entry[3][0] for entry in mine) / 3, abs=1e-12)
    one.close()


def test_a_fold_repeats_a_trial_as_a_seed_does(tmp_path: Path) -> None:
    one = search(tmp_path, ["seed=0,1", "+fold=range(2)"], num_trials=3)
    journal: list[Line] = []
    drive(one, journal, at_once=3)
    check_whole(one, journal)
    for trial in one.study.get_trials():
        assert "fold" not in str(trial.params)
        mine = [entry for entry in journal if entry[0].startswith(f"{trial.number}/")]
        assert [entry[1][-2:] for entry in mine] == [(f"seed={s}", f"+fold={f}") for s in "01" for f in "01"]
        assert trial.value == pytest.approx(sum(entry[3][0] for entry in mine) / 4, abs=1e-12)
    one.close()


def test_further_seeds_wait_for_the_first_which_alone_is_pruned(tmp_path: Path) -> None:
    one = search(
        tmp_path,
        ["seed=0,1"],
        num_trials=1,
        pruner={"_target_": "optuna.pruners.MedianPruner"},
        objective="val/loss",
    )
    first = one.next()
    assert first is not None
    assert first.trial == {
        "monitor": "val/loss",
        "storage": one._storage,
        "study": "sweep",
        "trial": 0,
        "pruner": {"_target_": "optuna.pruners.MedianPruner"},
    }
    assert one.next() is None
    one.tell(first.token, Outcome("finished"), [1.0])
    second = one.next()
    assert second is not None
    assert second.trial is None
    one.tell(second.token, Outcome("finished"), [3.0])
    assert one.next() is None
    assert one.study.best_value == 2.0
    one.close()


@pytest.mark.parametrize(("status", "told"), [("failed", "FAIL"), ("pruned", "PRUNED")])
def test_no_seed_follows_a_first_one_that_did_not_come_through(
    status: Status, told: str, tmp_path: Path
) -> None:
    one = search(tmp_path, ["seed=0,1,2"], num_trials=2)
    first = one.next()
    assert first is not None
    one.tell(first.token, ended(status), None)
    assert one.total == 4
    second = one.next()
    assert second is not None
    assert second.overrides[-1] == "seed=0"
    assert one.study.get_trials()[0].state.name == told
    one.close()


def test_a_trial_fails_with_any_of_its_seeds(tmp_path: Path) -> None:
    one = search(tmp_path, ["seed=0,1"], num_trials=1)
    drive(one, [], lambda o: (ended("failed"), None) if o[-1] == "seed=1" else done(o))
    assert [trial.state for trial in one.study.get_trials()] == [TrialState.FAIL]
    one.close()


# -- what is refused ---------------------------------------------------------------------------------------
LARGE = {f"x{number}": "range(1000)" for number in range(3)}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"num_trials": 0}, "at least 1"),
        ({"params": {}}, "nothing to search"),
        (
            {"sampler": {"_target_": "os.system"}},
            "hydra.sweeper.sampler: 'os.system' is not one of Optuna's samplers",
        ),
        ({"sampler": {"_target_": "optuna.samplers.BaseSampler"}}, "is not one of Optuna's samplers"),
        ({"sampler": {"_target_": "optuna.pruners.MedianPruner"}}, "is not one of Optuna's samplers"),
        ({"sampler": sampler("TPESampler") | {"seed": 3}}, "the seed of a study is hydra.sweeper.seed"),
        ({"sampler": sampler("TPESampler") | {"startup": 3}}, "TPESampler takes no 'startup'"),
        ({"sampler": sampler("TPESampler") | {"gamma": "x"}}, "gamma is a function"),
        ({"sampler": sampler("GridSampler")}, "a grid cannot list every number"),
        (
            {"pruner": {"_target_": "optuna.pruners.SuccessiveHalvingPruner", "min_resource": 0}},
            "hydra.sweeper.pruner: SuccessiveHalvingPruner",
        ),
        ({"direction": "up"}, "'up' is neither minimize nor maximize"),
        ({"objective": ["a", "b"], "direction": ["min"] * 3}, "3 of them for 2 objectives"),
        ({"sampler": sampler("CmaEsSampler")}, "hydra.sweeper.sampler: CMA-ES keeps its state as a pickle"),
        ({"sampler": sampler("GridSampler"), "params": LARGE}, "hydra.sweeper.sampler: the grid has"),
        ({"pruner": sampler("TPESampler")}, "hydra.sweeper.pruner: .* is not one of Optuna's pruners"),
        (
            {"objective": ["a", "b"], "pruner": {"_target_": "optuna.pruners.MedianPruner"}},
            "nothing can be pruned",
        ),
        (
            {"objective": "test/loss", "pruner": {"_target_": "optuna.pruners.MedianPruner"}},
            "only at the end",
        ),
    ],
)
def test_what_cannot_be_searched(arguments: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=says):  # noqa: PT012 - some of it is found when the study is opened
        one = search(tmp_path, **arguments)
        one.next()


def test_a_study_is_made_whole_or_not_at_all_and_for_its_objectives(tmp_path: Path) -> None:
    """A killed sweep leaves half a database under another name, which the next one replaces."""
    (tmp_path / ".study.db.tmp").write_bytes(b"SQLite format 3\0 cut off")
    run(tmp_path, num_trials=1).close()
    assert not (tmp_path / ".study.db.tmp").exists()
    with pytest.raises(ConfigError, match="has other objectives already"):
        search(tmp_path, objective="a", direction="maximize").next()
    (tmp_path / "study.db").write_bytes(b"not a database, but long enough to be read as one" * 40)
    with pytest.raises(ConfigError, match="cannot be opened"):
        search(tmp_path).next()


def test_a_missing_optuna_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="needs the package optuna") as caught:
        search(tmp_path)
    assert caught.value.hint == "pip install 'assay[optuna]'"
