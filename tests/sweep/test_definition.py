"""What the config says of a sweep, and what a sweep directory asks to be trusted with when it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from assay.check.report import Report
from assay.compose.compose import loader
from assay.errors import AssayError, ConfigError
from assay.paths import CONF_DIR
from assay_analysis.journal import Journal
from assay_sweep.definition import SweepDefinition, check_same_loss, find_class, make_part, read_definition
from assay_sweep.launcher.launcher import Launcher
from assay_sweep.launcher.local import LocalLauncher
from assay_sweep.launcher.serial import SerialLauncher
from assay_sweep.search.search import Search
from assay_sweep.session import resolve_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hydra._internal.hydra import Hydra

    from assay.compose.compose import Job


@pytest.fixture(scope="module")
def hydra() -> Iterator[Hydra]:
    with loader(None) as made:
        yield made


def definition(hydra: Hydra, *overrides: str) -> SweepDefinition:
    return read_definition(hydra, ["data=digits", "model=linear", "hydra.sweep.dir=sweep", *overrides], None)


def test_policy_search_and_launcher_come_from_their_nodes(hydra: Hydra) -> None:
    values = {"on_failure": "retry", "timeout_min": 5, "jobs_at_once": 3}
    sweep = definition(hydra, *(f"hydra.launcher.{key}={value}" for key, value in values.items()), "seed=1,2")
    assert (sweep.policy.on_failure, sweep.policy.timeout_min) == ("retry", 5)
    assert (sweep.search.total, sweep.directory) == (2, Path("sweep"))
    launcher = sweep.make_launcher()
    assert isinstance(launcher, LocalLauncher)
    assert launcher.slots == 3
    serial = definition(hydra, "hydra/launcher=serial")
    assert isinstance(serial.make_launcher(), SerialLauncher)


def test_two_sweeps_of_one_second_have_folders_of_their_own(hydra: Hydra) -> None:
    words = ["data=digits", "model=linear", "seed=1,2"]
    first, second = (read_definition(hydra, words, None).directory for _ in range(2))
    assert first.parent == second.parent == Path("outputs/digits_linear/sweeps")
    assert first != second


@pytest.mark.parametrize("limit", ["timeout_min=0", "timeout_min=-5", "memory_gb=0", "max_retries=-1"])
def test_a_limit_that_nothing_can_keep_is_refused(hydra: Hydra, limit: str) -> None:
    with pytest.raises(
        ConfigError, match=f"hydra.launcher.{limit.partition('=')[0]}: expected .*(>|>=) 0(.0)?, got"
    ):
        definition(hydra, f"hydra.launcher.{limit}")


@pytest.mark.parametrize("limit", ["timeout_min=5", "memory_gb=1"])
def test_no_limit_is_taken_where_it_is_not_kept(hydra: Hydra, limit: str) -> None:
    with pytest.raises(ConfigError, match=f"hydra.launcher.{limit.partition('=')[0]}: unknown key"):
        definition(hydra, "hydra/launcher=serial", f"hydra.launcher.{limit}")


@pytest.mark.parametrize("word", ["objective=val/acuracy", "direction=maximize"])
def test_a_score_that_no_job_has_is_named_where_it_was_typed(hydra: Hydra, word: str) -> None:
    sweep = definition(hydra, f"hydra.sweeper.{word}")
    report = Report([], "", scores=["val/loss", "val/accuracy"], directions={"val/loss": "min"})
    with pytest.raises(ConfigError) as error:
        sweep.check_scores(report)
    assert error.value.file == "command line"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("loss.label_smoothing=0,0.1",), "loss.label_smoothing=0, 0.1"),
        (("loss=cross_entropy,focal",), "loss=cross_entropy, focal"),
        (("loss.label_smoothing=0,0.1", "hydra.sweeper.objective=val/accuracy"), ""),
        (("optimizer.lr=1,2", "data.split.val=0.1,0.2"), ""),
        (("data=digits,breast_cancer",), ""),  # whose losses cannot be but different
    ],
)
def test_losses_that_are_not_one_quantity_are_no_objective(
    typed: tuple[str, ...], told: str, hydra: Hydra
) -> None:
    sweep = definition(hydra, *typed)
    jobs: dict[int, Job] = {}
    while proposal := sweep.search.next():
        jobs[len(jobs)] = sweep.composer.job(proposal.overrides, len(jobs))
    reports = {number: Report((), "run", scores=("val/loss", "val/accuracy")) for number in jobs}
    if not told:
        check_same_loss(sweep, jobs, reports)
        return
    with pytest.raises(ConfigError, match="cannot be compared by val/loss") as error:
        check_same_loss(sweep, jobs, reports)
    assert told in error.value.message
    assert error.value.hint == "hydra.sweeper.objective=val/accuracy"


LAUNCHER, SEARCH = "hydra.launcher", "hydra.sweeper"


class Small:
    """Takes a few values."""

    def __init__(self, count: int, name: str = "x", *, given: object = None) -> None:
        if count < 0:
            raise ValueError("count=-1: at least 0 was expected")
        if name == "broken":
            raise KeyError(name)
        self.values = (count, name, given)


def test_hydras_own_name_is_assays_class_in_order() -> None:
    """A node that Hydra's users know means what it says."""
    node = {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}
    assert find_class(node, LAUNCHER, Launcher, []) is SerialLauncher


@pytest.mark.parametrize(("key", "base"), [(LAUNCHER, Launcher), (SEARCH, Search)])
@pytest.mark.parametrize("name", ["os.system", "assay.module.Module", ""])
def test_anything_else_is_refused_before_it_is_imported(key: str, base: type, name: str) -> None:
    with pytest.raises(ConfigError, match="is neither part of assay nor in a trusted package") as error:
        find_class({"_target_": name}, key, base, [])
    assert error.value.key == f"{key}._target_"


@pytest.mark.parametrize("part", ["launcher", "sweeper"])
def test_each_of_assays_options_is_found(part: str) -> None:
    for path in CONF_DIR.glob(f"hydra/{part}/[!_]*.yaml"):
        base = Launcher if part == "launcher" else Search
        assert issubclass(find_class(yaml.safe_load(path.read_text()), f"hydra.{part}", base, []), base)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("local.os.kill", "is not allowed: .* is the module os"),
        ("local.os", "is the module os"),
        ("local.LocaLauncher", "has no 'LocaLauncher'"),
        ("slurm.query_states", "is not a subclass of"),
        ("slurm.ClusterWorker", "is not allowed: it is"),
        ("launcher.Launcher", "cannot be made: it lacks"),
    ],
)
def test_what_lies_beside_a_launcher_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        find_class({"_target_": f"assay_sweep.launcher.{name}"}, LAUNCHER, Launcher, [])
    assert error.value.key == f"{LAUNCHER}._target_"


@pytest.mark.parametrize(
    ("values", "key", "message"),
    [
        ({"count": "two"}, "hydra.launcher.count", "expected int, got two"),
        ({"coutn": 2}, "hydra.launcher.coutn", "this key has no effect; did you mean 'count'"),
        ({"count": 1, "given": 2}, "hydra.launcher.given", "this key has no effect"),
        ({"count": 1, "retires": 2}, "hydra.launcher.retires", "did you mean 'retries'"),
        ({"count": -1}, "hydra.launcher", "at least 0 was expected"),
        ({"count": 1, "name": "broken"}, "hydra.launcher", "Small cannot be built: KeyError"),
    ],
)
def test_a_value_that_does_not_fit(values: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        make_part(Small, values, LAUNCHER, ignored=["retries"], given=None)
    assert error.value.key == key


class Sweeps:
    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def go_on(
        self, *typed: str, cwd: Path, began: Path, then: str = "", name: str = "", **places: Any
    ) -> tuple[Path, Path | None]:
        self.count += 1
        sweep = self.folder / (name or f"sweep {self.count}")
        (sweep / "journal.jsonl").unlink(missing_ok=True)
        header = {"config_dir": str(places.get("config_dir", "")), "cwd": str(began), "started": ""}
        journal = Journal.create(sweep, overrides=then.split(), **header)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(cwd)
            return resolve_folders(sweep, journal, typed, places.get("flag"))


@pytest.fixture
def sweeps(tmp_path: Path) -> Sweeps:
    return Sweeps(tmp_path)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A project with packages of its own."""
    (tmp_path / "lab/conf").mkdir(parents=True)
    (tmp_path / "lab/conf/project.yaml").write_text("trusted_packages: [lab]\n", encoding="utf-8")
    return tmp_path / "lab"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def asked(call: pytest.ExceptionInfo[AssayError]) -> str:
    assert "needs your approval for" in call.value.message
    return call.value.hint


def test_from_the_project_nothing_new_is_typed(sweeps: Sweeps, lab: Path) -> None:
    assert sweeps.go_on(cwd=lab, began=lab)[0] == lab
    (lab / "own").mkdir()
    assert sweeps.go_on(cwd=lab, began=lab, config_dir=lab / "own")[1] == lab / "own"
    assert sweeps.go_on(cwd=lab, began=lab, then="trusted_packages=[lab] seed=1,2")[1] is None


def test_from_anywhere_where_nothing_is_trusted(sweeps: Sweeps, lab: Path, empty: Path) -> None:
    assert sweeps.go_on(cwd=lab, began=empty)[0] == empty
    assert sweeps.go_on(cwd=empty, began=empty / "gone")[0] == empty


def test_another_project_has_to_be_gone_to(sweeps: Sweeps, lab: Path, empty: Path) -> None:
    with pytest.raises(AssayError) as caught:
        sweeps.go_on("seed=1", cwd=empty, began=lab)
    hint = asked(caught)
    assert f"cd {lab} && assay resume '{sweeps.folder}/sweep 1' seed=1" in hint


def test_a_config_folder_is_named(sweeps: Sweeps, lab: Path, empty: Path) -> None:
    with pytest.raises(AssayError) as caught:
        sweeps.go_on(cwd=empty, began=empty, config_dir=lab / "conf")
    assert f"--config-dir {lab / 'conf'}" in asked(caught)
    said = sweeps.go_on(cwd=empty, began=empty, config_dir=lab / "conf", flag=lab / "conf")
    assert said[1] == lab / "conf"
    # A folder that the sweep has brought along, however it calls the place where it was begun.
    (lab / "sweep/conf").mkdir(parents=True)
    for began in (lab, Path(), lab / "gone"):
        with pytest.raises(AssayError):
            sweeps.go_on(cwd=lab, began=began, config_dir=lab / "sweep/conf", name="lab/sweep")
    # One that lies below this directory by chance, of a sweep that was begun elsewhere.
    with pytest.raises(AssayError):
        sweeps.go_on(cwd=lab.parent, began=empty, config_dir=lab / "conf")


@pytest.mark.parametrize(
    "word",
    ["trusted_packages=[evil]", "++trusted_packages=[evil,lab]", "hydra.searchpath=[file:///evil]"],
)
def test_trust_and_the_search_path_are_said_anew(sweeps: Sweeps, lab: Path, word: str) -> None:
    with pytest.raises(AssayError) as caught:
        sweeps.go_on(cwd=lab, began=lab, then=f"seed=1,2 {word}")
    hint = asked(caught)
    confirmed = "hydra.searchpath=[file:///evil]" if "search" in word else "trusted_packages=[evil]"
    assert confirmed in hint
    sweeps.go_on(confirmed, cwd=lab, began=lab, then=f"seed=1,2 {word}")
