"""Studies over plain functions: what is asked, told, killed and taken up again."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from optuna.trial import TrialState

from assay.errors import AssayError, ConfigError
from assay.record.outcome import Outcome
from assay.sweep.search.optuna import OptunaSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import optuna

    from assay.record.outcome import Status
    from assay.sweep.search.search import Proposal

SPACE = {"lr": "tag(log, interval(1e-5, 1))", "width": "range(1, 65)", "opt": "sgd,adamw"}
SAMPLERS = ("TPESampler", "CmaEsSampler", "NSGAIISampler", "QMCSampler", "RandomSampler")
COUNTED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
Line = list[Any]
"""Of a journal: a proposal's token and overrides; its outcome and scores, or None."""


def sampler(name: str) -> dict[str, Any]:
    more: dict[str, dict[str, Any]] = {
        "TPESampler": {"n_startup_trials": 4, "multivariate": True},
        "CmaEsSampler": {"warn_independent_sampling": False},
        "QMCSampler": {"warn_independent_sampling": False},
        "NSGAIISampler": {"population_size": 4},
    }
    return {"_target_": f"optuna.samplers.{name}", **more.get(name, {})}


def search(folder: Path, overrides: Sequence[str] = (), **arguments: Any) -> OptunaSearch:
    return OptunaSearch(overrides, folder, **{"params": SPACE, "num_trials": 8, **arguments})


def loss(overrides: Sequence[str]) -> float:
    given = dict(one.split("=") for one in overrides)
    seed = int(given.get("seed", 0))
    lr, width = math.log10(float(given["lr"])), int(given["width"])
    return (lr + 2) ** 2 + abs(width - 37) / 30 + (given["opt"] == "sgd") + 0.1 * seed


def done(overrides: Sequence[str]) -> tuple[Outcome, list[float] | None]:
    return Outcome("finished"), [loss(overrides)]


def ended(status: Status, **more: Any) -> Outcome:
    return Outcome(status, **more)


class Killed(BaseException):
    """The driver's end, wherever it was."""


def drive(
    one: OptunaSearch,
    journal: list[Line],
    end: Callable[[Sequence[str]], tuple[Outcome, list[float] | None]] = done,
    *,
    at_once: int = 1,
    calls: float = math.inf,
) -> None:
    """Runs a sweep as a driver would, and dies after so many calls."""
    left = calls

    def alive() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    one.restore([(token, outcome, scores) for token, _, outcome, scores in journal])
    running = [entry for entry in journal if entry[2] is None]
    shuffled = random.Random(0)
    while True:
        while len(running) < at_once:
            alive()
            proposal = one.next()
            if proposal is None:
                break
            alive()
            journal.append([proposal.token, proposal.overrides, None, None])
            running.append(journal[-1])
        if not running:
            return
        entry = running.pop(shuffled.randrange(len(running)))
        outcome, scores = end(entry[1])
        alive()
        entry[2:] = [outcome, scores]
        alive()
        one.tell(entry[0], outcome, scores)


def run(folder: Path, journal: list[Line] | None = None, at_once: int = 1, **arguments: Any) -> OptunaSearch:
    one = search(folder, **arguments)
    drive(one, [] if journal is None else journal, at_once=at_once)
    return one


def counted(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    return [one for one in study.get_trials() if "abandoned" not in one.user_attrs]


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


@pytest.mark.always("TPESampler", "CmaEsSampler")
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


@pytest.mark.always("TPESampler")
@pytest.mark.parametrize("name", ["TPESampler", "NSGAIISampler"])
def test_constraints_draw_the_search_to_where_they_hold(name: str, tmp_path: Path) -> None:
    def end(overrides: Sequence[str]) -> tuple[Outcome, list[float] | None]:
        width = float(overrides[1].removeprefix("width="))
        return Outcome("finished", metrics={"size": width}), [-width]

    shares = []
    for constraints in ([], ["size <= 20"]):
        one = search(
            tmp_path / str(len(constraints)),
            sampler=sampler(name),
            constraints=constraints,
            num_trials=18,
        )
        drive(one, [], end)
        late = [trial.params["width"] for trial in one.study.get_trials()[8:]]
        shares.append(sum(width <= 20 for width in late) / len(late))
        if constraints:
            for trial in one.study.get_trials():
                assert trial.system_attrs["constraints"] == [trial.params["width"] - 20]
        one.close()
    assert shares[1] > shares[0] + 0.3, shares


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


# -- killed and resumed --------------------------------------------------------------------------------------


def kill_and_resume(folder: Path, calls: int, at_once: int, **arguments: Any) -> tuple[list[Line], bool]:
    """The journal of a sweep that was killed after so many calls and resumed; whether it was."""
    journal: list[Line] = []
    one = search(folder, **arguments)
    killed = False
    try:
        drive(one, journal, at_once=at_once, calls=calls)
    except Killed:
        killed = True
    one.close()
    again = search(folder, **arguments)
    drive(again, journal, at_once=at_once)
    check_whole(again, journal)
    again.close()
    return journal, killed


def check_whole(one: OptunaSearch, journal: list[Line]) -> None:
    trials = counted(one.study)
    seeds = max(1, len(one._space.seeds))
    assert len(trials) == one._limit
    assert len(journal) == len({entry[0] for entry in journal}) == one.total == len(trials) * seeds
    assert all(trial.state == TrialState.COMPLETE for trial in trials)
    for trial in one.study.get_trials():
        assert trial.state.is_finished()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """The journal of a study that nobody kills."""
    journal: list[Line] = []
    run(tmp_path_factory.mktemp("whole"), journal, num_trials=5).close()
    return journal


@pytest.mark.always("14")
@pytest.mark.parametrize("calls", [3, 4, 9, 14, 19])
def test_a_killed_study_ends_with_exactly_its_trials(calls: int, whole: list[Line], tmp_path: Path) -> None:
    journal, killed = kill_and_resume(tmp_path / "killed", calls, 1, num_trials=5)
    assert killed
    assert [entry[1] for entry in journal] == [entry[1] for entry in whole], "a serial one is the same again"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [*SAMPLERS, "GridSampler"])
@pytest.mark.parametrize("overrides", [(), ("seed=0,1,2",)], ids=["one seed", "three seeds"])
def test_killed_between_any_two_calls(name: str, overrides: Sequence[str], tmp_path: Path) -> None:
    space = {**SPACE, "lr": "0.1,0.01"} if name == "GridSampler" else SPACE
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
                params=space,
                num_trials=6,
            )
        assert calls > 20


@pytest.mark.always("5", "17")
@pytest.mark.parametrize("calls", [2, 5, 11, 17])
def test_killed_with_three_jobs_of_two_seeds_at_once(calls: int, tmp_path: Path) -> None:
    _, killed = kill_and_resume(tmp_path, calls, 3, overrides=["seed=0,1"], num_trials=3)
    assert killed


DRIVER = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from assay.record.outcome import Outcome
from test_optuna import loss, search
folder = Path(sys.argv[1])
journal = folder / "journal.jsonl"
lines = journal.read_text().split("\\n") if journal.exists() else []
known = {}
for line in lines[:-1]:
    token, overrides, scores = json.loads(line)
    known[token] = (overrides, scores)
one = search(folder, num_trials=int(sys.argv[3]))
one.restore([(t, Outcome("finished") if s else None, s) for t, (o, s) in known.items()])
with journal.open("a") as file:
    def write(*entry):
        file.write(json.dumps(entry) + "\\n"); file.flush(); os.fsync(file.fileno())
    if lines and lines[-1]:
        file.write("\\n")
    waiting = [(t, o) for t, (o, s) in known.items() if not s]
    while True:
        if not waiting:
            proposal = one.next()
            if proposal is None:
                break
            write(proposal.token, proposal.overrides, None)
            waiting.append((proposal.token, proposal.overrides))
        token, overrides = waiting.pop()
        scores = [loss(overrides)]
        write(token, overrides, scores)
        one.tell(token, Outcome("finished"), scores)
print("whole")
"""


@pytest.mark.parametrize("kills", [2, pytest.param(60, marks=pytest.mark.long)])
def test_a_process_killed_anywhere_in_a_study(kills: int, tmp_path: Path) -> None:
    """SIGKILL, also in the midst of Optuna's own writes."""
    trials, moments = (12, random.Random(1)) if kills < 10 else (150, random.Random(2))
    command = [sys.executable, "-c", DRIVER, str(tmp_path), str(Path(__file__).parent), str(trials)]
    said = ""

    def written() -> list[str]:
        path = tmp_path / "journal.jsonl"
        return path.read_text().splitlines() if path.exists() else []

    for attempt in range(kills + 1):
        before = len(written())
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if attempt < kills:
            # First while the study is being made, then while it is used.
            while process.poll() is None and not (
                len(written()) > before + 2 if attempt else (tmp_path / ".study.db.tmp").exists()
            ):
                time.sleep(0.005)
            time.sleep(moments.uniform(0, 0.05))
            process.kill()
        said, _ = process.communicate(timeout=120)
    assert "whole" in said
    one = search(tmp_path, num_trials=trials)
    assert len(counted(one.study)) == trials
    one.close()
    assert len({line.split(",", 1)[0] for line in written()}) == trials


def test_more_trials_on_resume_are_added_to_those_there_are(tmp_path: Path) -> None:
    journal: list[Line] = []
    run(tmp_path, journal, num_trials=3).close()
    one = run(tmp_path, journal, num_trials=5)
    assert len(journal) == len(one.study.get_trials()) == 5
    assert len({entry[1] for entry in journal}) == 5, "a sampler that begins anew repeats its first trials"
    one.close()


def test_a_job_that_was_interrupted_has_not_ended(tmp_path: Path) -> None:
    one = search(tmp_path)
    proposal = one.next()
    assert proposal is not None
    one.tell(proposal.token, ended("interrupted"), None)
    assert one.study.get_trials()[0].state == TrialState.RUNNING
    one.tell(proposal.token, Outcome("finished"), [1.0])
    one.tell(proposal.token, Outcome("finished"), [2.0])
    assert one.study.get_trials()[0].value == 1.0
    one.close()


def test_trials_that_the_storage_lost_count_and_keep_their_numbers(tmp_path: Path) -> None:
    journal: list[Line] = []
    run(tmp_path / "1", journal, num_trials=3).close()
    journal[-1][2:] = [None, None]
    one = search(tmp_path / "2", num_trials=5)
    drive(one, journal)
    assert [entry[0] for entry in journal] == ["0", "1", "2", "3", "4"]
    assert one.notes == ["the storage has lost 3 trials: they count, and teach nothing"]
    states = [trial.state for trial in one.study.get_trials()]
    assert states == [TrialState.FAIL] * 3 + [TrialState.COMPLETE] * 2
    one.close()


def test_other_choices_on_resume_are_told_of(tmp_path: Path) -> None:
    journal: list[Line] = []
    run(tmp_path, journal, num_trials=2).close()
    one = search(tmp_path, params={**SPACE, "opt": "sgd,adamw,rmsprop"}, num_trials=3)
    one.restore([(token, outcome, scores) for token, _, outcome, scores in journal])
    with pytest.raises(ConfigError, match="cannot go on with this space"):
        one.next()
    one.close()


# -- storages ------------------------------------------------------------------------------------------------


def test_a_journal_file_and_a_url_hold_studies_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for storage in ("some.journal", f"sqlite:///{tmp_path}/some.db"):
        journal: list[Line] = []
        run(tmp_path / "sweep", journal, storage=storage, study_name="mine", num_trials=3).close()
        one = run(tmp_path / "sweep", journal, storage=storage, study_name="mine", num_trials=5)
        assert len(one.study.get_trials()) == len(journal) == 5
        one.close()


def test_two_sweeps_share_one_study(tmp_path: Path) -> None:
    shared: dict[str, Any] = {
        "storage": str(tmp_path / "shared.journal"),
        "study_name": "both",
        "num_trials": 7,
    }
    one, other = search(tmp_path / "1", **shared), search(tmp_path / "2", **shared)
    asked: list[tuple[OptunaSearch, Proposal]] = []
    while True:
        proposals = [(mine, mine.next()) for mine in (one, other)]
        if proposals[0][1] is None and proposals[1][1] is None:
            break
        asked += [(mine, proposal) for mine, proposal in proposals if proposal is not None]
    assert len(asked) == 7
    # A resumed one abandons none that the other runs.
    again = search(tmp_path / "1", **shared)
    again.restore([(proposal.token, None, None) for mine, proposal in asked if mine is one])
    assert len(counted(again.study)) == 7
    for mine, proposal in asked:
        (again if mine is one else other).tell(
            proposal.token, Outcome("finished"), [loss(proposal.overrides)]
        )
    assert len(other.study.get_trials(states=(TrialState.COMPLETE,))) == 7


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"storage": "study.txt"}, "'study.txt' is not a storage"),
        ({"storage": "nonsense://x"}, "hydra.sweeper.storage: the study cannot be opened"),
        ({"storage": "sqlite:////nowhere/at/all.db"}, "hydra.sweeper.storage: the study cannot be opened"),
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
        ({"objective": ["a", "b"], "sampler": sampler("CmaEsSampler")}, "CMA-ES takes one objective"),
        (
            {"objective": ["a", "b"], "pruner": {"_target_": "optuna.pruners.MedianPruner"}},
            "nothing can be pruned",
        ),
        (
            {"objective": "test/loss", "pruner": {"_target_": "optuna.pruners.MedianPruner"}},
            "only at the end",
        ),
        ({"constraints": ["val/loss < 3"]}, "not a bound on a metric"),
        ({"constraints": ["size <= 3"], "sampler": sampler("QMCSampler")}, "knows no constraints"),
        ({"warm_start": ["nowhere"]}, "there is no folder nowhere|nowhere holds no run"),
    ],
)
def test_what_cannot_be_searched(arguments: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=says):  # noqa: PT012 - some of it is found when the study is opened
        one = search(tmp_path, **arguments)
        one.next()


def test_a_missing_optuna_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="needs the package optuna") as caught:
        search(tmp_path)
    assert caught.value.hint == "pip install 'assay[optuna]'"
