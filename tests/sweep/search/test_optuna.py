"""Studies over a plain function: what is asked and told, what is kept, and kills at any time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from optuna.trial import TrialState
from tests.sweep.search.studies import (
    SAMPLERS,
    SPACE,
    Killed,
    Line,
    check_whole,
    drive,
    ended,
    loss,
    run,
    sampler,
    search,
)

from assay.errors import AssayError, ConfigError
from assay.record.run_record import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.record.run_record import Status


# -- searching -----------------------------------------------------------------------------------------------


@pytest.mark.always("TPESampler", "QMCSampler")
@pytest.mark.parametrize("name", SAMPLERS)
def test_each_sampler_proposes_the_trials_asked_for_and_a_serial_study_is_reproduced(
    name: str, tmp_path: Path
) -> None:
    place = tmp_path / "a sweep #1 %?"
    journals: list[list[Line]] = [[], [], []]
    for journal, folder, seed in zip(
        journals, (place, tmp_path / "2", tmp_path / "3"), (0, 0, 1), strict=True
    ):
        one = run(folder, journal, sampler=sampler(name), num_trials=6 if seed == 0 else 2, seed=seed)
        trials = one.study.get_trials()
        assert len(journal) == one.total == len(trials) == len({entry[1] for entry in journal})
        for token, overrides, _, scores in journal:
            trial = trials[int(token)]
            assert (trial.state, trial.values) == (TrialState.COMPLETE, scores)
            lr, width, opt = (trial.params[key] for key in ("lr", "width", "opt"))
            assert overrides == (f"lr={lr!r}", f"width={width}", f"opt={opt}")
    assert (place / "study.log").is_file()
    assert journals[0] == journals[1]
    assert journals[0][:2] != journals[2]


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


# -- seeds ---------------------------------------------------------------------------------------------------


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


def test_further_seeds_wait_for_the_first_which_alone_is_pruned(tmp_path: Path) -> None:
    one = search(tmp_path, ["seed=0,1"], num_trials=1, pruner=MEDIAN, objective="val/loss")
    first = one.next()
    assert first is not None
    assert one.trial(first.token) == {
        "monitor": "val/loss",
        "storage": str(tmp_path / "study.log"),
        "trial": 0,
        "pruner": MEDIAN,
    }
    assert one.next() is None
    one.tell(first.token, Outcome("finished"), [1.0])
    second = one.next()
    assert second is not None
    assert one.trial(second.token) is None
    one.tell(second.token, Outcome("finished"), [3.0])
    assert one.next() is None
    assert one.study.best_value == 2.0


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


# -- what is refused ---------------------------------------------------------------------------------------


TPE, MEDIAN = sampler("TPESampler"), {"_target_": "optuna.pruners.MedianPruner"}


HALVING = {"_target_": "optuna.pruners.SuccessiveHalvingPruner", "min_resource": 0}
HYPERBAND = {"_target_": "optuna.pruners.HyperbandPruner"}


def test_that_the_parts_were_tried_is_not_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    search(tmp_path, pruner=MEDIAN)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"params": {}}, "nothing to search"),
        ({"sampler": {"_target_": "os.system"}}, "sampler: 'os.system' is not one of Optuna's samplers"),
        ({"sampler": {"_target_": "optuna.samplers.BaseSampler"}}, "is not one of Optuna's samplers"),
        ({"sampler": MEDIAN}, "is not one of Optuna's samplers"),
        ({"sampler": TPE | {"seed": 3}}, "multiple values for keyword argument 'seed'"),
        ({"sampler": TPE | {"startup": 3}}, "unexpected keyword argument 'startup'"),
        ({"pruner": HALVING}, "hydra.sweeper.pruner: SuccessiveHalvingPruner"),
        ({"pruner": HYPERBAND | {"min_resource": 0}}, "hydra.sweeper.pruner: .*division by zero"),
        ({"pruner": HYPERBAND | {"reduction_factor": 0}}, "hydra.sweeper.pruner: "),
        ({"sampler": TPE | {"n_startup_trials": "few"}}, "hydra.sweeper.sampler: .*'int' and 'str'"),
        ({"direction": "up"}, "'up' is neither minimize nor maximize"),
        ({"objective": ["a", "b"], "direction": ["min"] * 3}, "3 of them for 2 objectives"),
        ({"sampler": sampler("CmaEsSampler")}, "hydra.sweeper.sampler: CMA-ES keeps its state as a pickle"),
        ({"pruner": TPE}, "hydra.sweeper.pruner: .* is not one of Optuna's pruners"),
        ({"objective": ["a", "b"], "pruner": MEDIAN}, "nothing can be pruned"),
        ({"objective": "test/loss", "pruner": MEDIAN}, "only at the end"),
    ],
)
def test_what_cannot_be_searched(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=message):  # noqa: PT012 - some of it is found when the study is opened
        one = search(tmp_path, **arguments)
        one.next()


def test_half_a_line_is_cut_off_and_a_study_is_for_its_objectives(tmp_path: Path) -> None:
    run(tmp_path, num_trials=1)
    whole = (tmp_path / "study.log").read_bytes()
    (tmp_path / "study.log").write_bytes(whole + b'{"op_code"')
    assert len(search(tmp_path).study.get_trials()) == 1
    assert (tmp_path / "study.log").read_bytes().startswith(whole)
    with pytest.raises(ConfigError, match="has other objectives already"):
        search(tmp_path, objective="a", direction="maximize").next()
    (tmp_path / "study.log").write_bytes(b"not a study\n" * 3)
    with pytest.raises(ConfigError, match=r"study\.log is damaged"):
        search(tmp_path).next()


def test_a_missing_optuna_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.targets.resolve._is_installed", lambda _name: False)
    with pytest.raises(ConfigError, match="needs the package optuna") as caught:
        search(tmp_path)
    assert caught.value.hint == "pip install 'assay[optuna]'"


def kill_and_resume(folder: Path, calls: int, at_once: int, **arguments: Any) -> tuple[list[Line], bool]:
    """The journal of a sweep that was killed after so many calls and resumed; whether it was."""
    journal: list[Line] = []
    one = search(folder, **arguments)
    killed = False
    try:
        drive(one, journal, at_once=at_once, calls=calls)
    except Killed:
        killed = True
    again = search(folder, **arguments)
    drive(again, journal, at_once=at_once)
    check_whole(again, journal)
    return journal, killed


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """The journal of a study that nobody kills."""
    journal: list[Line] = []
    run(tmp_path_factory.mktemp("whole"), journal, num_trials=5)
    return journal


@pytest.mark.parametrize("calls", [4, 14])
def test_a_killed_study_ends_with_exactly_its_trials(calls: int, whole: list[Line], tmp_path: Path) -> None:
    journal, killed = kill_and_resume(tmp_path / "killed", calls, 1, num_trials=5)
    assert killed
    assert [entry[1] for entry in journal] == [entry[1] for entry in whole], "a serial one is the same again"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("overrides", [(), ("seed=0,1,2",)], ids=["one seed", "three seeds"])
def test_killed_between_any_two_calls(name: str, overrides: Sequence[str], tmp_path: Path) -> None:
    for at_once in (1, 3):
        calls, killed = 0, True
        while killed:
            calls += 1
            _, killed = kill_and_resume(
                tmp_path / f"{at_once}-{calls}",
                calls,
                at_once,
                overrides=overrides,
                sampler=sampler(name),
                num_trials=6,
            )
        assert calls > 20


@pytest.mark.parametrize("calls", [5, 17])
def test_killed_with_three_jobs_of_two_seeds_at_once(calls: int, tmp_path: Path) -> None:
    _, killed = kill_and_resume(tmp_path, calls, 3, overrides=["seed=0,1"], num_trials=3)
    assert killed


def test_more_trials_on_resume_are_added_to_those_there_are(tmp_path: Path) -> None:
    journal: list[Line] = []
    run(tmp_path, journal, num_trials=3)
    one = run(tmp_path, journal, num_trials=5)
    assert len(journal) == len(one.study.get_trials()) == 5
    assert len({entry[1] for entry in journal}) == 5, "a sampler that begins anew repeats its first trials"


def test_a_job_that_was_interrupted_has_not_ended(tmp_path: Path) -> None:
    one = search(tmp_path)
    proposal = one.next()
    assert proposal is not None
    one.tell(proposal.token, ended("interrupted"), None)
    assert one.study.get_trials()[0].state == TrialState.RUNNING
    one.tell(proposal.token, Outcome("finished"), [1.0])
    one.tell(proposal.token, Outcome("finished"), [2.0])
    assert one.study.get_trials()[0].value == 1.0


def test_other_choices_on_resume_are_told_of(tmp_path: Path) -> None:
    journal: list[Line] = []
    run(tmp_path, journal, num_trials=2)
    one = search(tmp_path, params={**SPACE, "opt": "sgd,adamw,rmsprop"}, num_trials=3)
    one.restore([(token, outcome, scores) for token, _, outcome, scores in journal])
    with pytest.raises(ConfigError, match="cannot continue with this search space"):
        one.next()


def test_a_study_without_trials_of_the_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no trial 0, which the journal has"):
        search(tmp_path).restore([("0", None, None)])
