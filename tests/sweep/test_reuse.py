"""A job that equals a finished run is that run; one that differs in anything that counts is trained."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import chdir, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import git
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from tests.command import documented, typed
from tests.forks import Forks

import assay
from assay.errors import ConfigError, is_users_own
from assay.files.checksum import seal_json, seal_yaml
from assay.record import provenance
from assay.record.run_directory import digest_of_file
from assay.record.run_record import RunRecord
from assay.rooms import entries
from assay_sweep import reuse
from assay_sweep.session import resume_sweep, start_sweep
from assay_sweep.summary import SweepProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TABLE = "a,b,label\n" + "".join(f"{n % 7}.5,{n % 3},{'xy'[n % 2]}\n" for n in range(80))
QUICK = (
    *("data=table", "data.source.path=rows.csv", "data.source.target=label", "model=mlp", "model.hidden=[4]"),
    *("device=cpu", "trainer.max_epochs=2", "data.batch_size=16", "~callbacks.progress_bar", "baseline=none"),
)
SWEEP = (*QUICK, "hydra/launcher=serial")
NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(num_features, num_outputs))
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a space in its name, and a table; the code of assay counts as committed."""
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "rows.csv").write_text(TABLE, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(provenance, "assay_commit", lambda: "0123456789ab")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.org")
    return folder


def train(*words: str, run: str = "outputs/first") -> tuple[Path, str]:
    """The run directory that a command ends with, and what it printed."""
    result = typed("train", *QUICK, *words, f"hydra.run.dir={run}")
    (line,) = (line for line in result.output.splitlines() if line.startswith("run "))
    return Path(line.removeprefix("run").strip()), result.output


def change_record(run_dir: Path, **fields: Any) -> None:
    path = run_dir / "record.json"
    plain = {**json.loads(path.read_text(encoding="utf-8")), **fields}
    del plain["sha256"]
    path.write_text(seal_json(json.dumps(plain, indent=2)), encoding="utf-8")


def contents(run_dir: Path) -> dict[str, bytes]:
    """All that a run leaves and that does not tell where and when it ran."""
    names = ("metrics.csv", "predictions.parquet", "encoder.json", "importances.json", "samples.parquet")
    return {name: (run_dir / name).read_bytes() for name in names if (run_dir / name).exists()}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """Record and parts of a job that is about to be trained again, and its finished run."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "rows.csv").write_text(TABLE, encoding="utf-8")
    found: list[Any] = []

    def keep(*arguments: Any, take: bool) -> None:
        found[:] = arguments

    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        patch.setattr(provenance, "assay_commit", lambda: "0123456789ab")
        patch.setattr(reuse, "offer", keep)
        entries.cache_clear()
        train()
    entries.cache_clear()
    return found[0], found[1], folder / "outputs" / "first"


@pytest.fixture
def finished(asked: tuple[Any, Any, Path], tmp_path: Path) -> Path:
    """A copy of that run."""
    return Path(shutil.copytree(asked[2], tmp_path / "copy"))


@pytest.fixture
def first(asked: tuple[Any, Any, Path]) -> Path:
    """A copy of that run in the project."""
    return Path(shutil.copytree(asked[2], "outputs/first"))


@pytest.fixture(scope="module")
def two_seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of `seed=1,2`."""
    folder = tmp_path_factory.mktemp("two seeds")
    (folder / "rows.csv").write_text(TABLE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        patch.setattr(provenance, "assay_commit", lambda: "0123456789ab")
        start_sweep([*SWEEP, "hydra.sweep.dir=outputs/a", "seed=1,2"])
    return folder / "outputs" / "a"


@pytest.fixture
def swept(two_seeds: Path) -> Path:
    """A copy of that sweep in the project."""
    return Path(shutil.copytree(two_seeds, "outputs/a"))


def test_train_names_a_finished_run_and_takes_it_when_told_to(first: Path) -> None:
    taken, said = train("--reuse", run="outputs/second")
    assert taken == first, said
    assert not Path("outputs/second").exists()
    assert f"{first} is this run, finished: nothing is trained" in said.replace("\n", " ")
    assert "test" in said
    code, document = documented("train", *QUICK, "--reuse", "hydra.run.dir=outputs/second")
    assert code == 0
    assert document["run_dir"] == document["reused_from"] == str(first)
    assert document["metrics"] == RunRecord.load(first).metrics
    second, said = train(run="outputs/second")
    assert second == Path("outputs/second")
    assert f"{first} is this run, finished: add --reuse to take it" in said
    assert contents(first) == contents(second)
    one, other = RunRecord.load(first), RunRecord.load(second)
    assert (one.metrics, one.weights_sha256) == (other.metrics, other.weights_sha256)
    assert "reuse" not in train("seed=8", run="outputs/third")[1]


def test_a_changed_byte_of_data_is_named_and_trained(first: Path) -> None:
    Path("rows.csv").write_text(TABLE.replace("0.5", "0.6", 1), encoding="utf-8")
    run, said = train("--reuse", run="outputs/second")
    assert run == Path("outputs/second")
    said = " ".join(said.split())
    assert f"{first} has this config, but is not taken for this run: data: its SHA-256 differs" in said


def _differ(field: str, name: str, value: Any) -> Callable[[Path], None]:
    def change(run_dir: Path) -> None:
        change_record(run_dir, **{field: getattr(RunRecord.load(run_dir), field) | {name: value}})

    return change


def _damage(run_dir: Path) -> None:
    (run_dir / "metrics.csv").write_text("epoch,step\n", encoding="utf-8")


def _remove_weights(run_dir: Path) -> None:
    (run_dir / "checkpoints" / "best.ckpt").unlink()


def _keep_fewer(run_dir: Path) -> None:
    path = run_dir / "config.yaml"
    text = path.read_text(encoding="utf-8").replace("max_megabytes: 64", "max_megabytes: 0")
    path.write_text(seal_yaml(text.rpartition("# sha256")[0]), encoding="utf-8")
    change_record(run_dir, files=RunRecord.load(run_dir).files | {"config.yaml": digest_of_file(path)})


CHANGES: dict[str, Callable[[Path], None]] = {
    "packages: numpy 1.0 then": _differ("packages", "numpy", "1.0"),
    "packages: torchmetrics 1.0 then": _differ("packages", "torchmetrics", "1.0"),
    "packages: lightning none then": lambda run_dir: change_record(
        run_dir,
        packages={
            name: text for name, text in RunRecord.load(run_dir).packages.items() if name != "lightning"
        },
    ),
    "CPU: another then": _differ("machine", "cpu", "another"),
    "threads: 64 then": _differ("machine", "threads", 64),
    "device: ['H200'] then, none now": _differ("machine", "gpus", ["H200"]),
    "commit of assay: ba9876543210 then": _differ("machine", "assay", "ba9876543210"),
    "environment: MKL_CBWR=AVX2 then": lambda run_dir: _differ(
        "machine", "environment", RunRecord.load(run_dir).machine["environment"] | {"MKL_CBWR": "AVX2"}
    )(run_dir),
    "config: changed on resuming": lambda run_dir: change_record(
        run_dir, resumed=[{"changed": {"optimizer.lr": [1, 2]}, "from_step": 3}]
    ),
    "data: its SHA-256 differs": lambda run_dir: change_record(run_dir, data_sha256="0" * 64),
    "it lost rows": lambda run_dir: change_record(run_dir, reason="lost 3 rows"),
    "it was changed after": lambda run_dir: change_record(run_dir, threshold={"value": 0.3, "chosen": "f1"}),
    "it was changed after its end": lambda run_dir: change_record(run_dir, test_looks=1),
    "or ran out of memory": lambda run_dir: change_record(run_dir, micro_batch={"0": 8}),
    "predictions: other ones": _keep_fewer,
    "files: not as the run wrote them": _damage,
    "files: not": _remove_weights,
}


@pytest.mark.parametrize("reason", CHANGES)
def test_what_differs_is_named(reason: str, asked: tuple[Any, Any, Path], finished: Path) -> None:
    record, assembly, original = asked
    record.data_sha256 = RunRecord.load(original).data_sha256
    assert reuse.find_same(record, assembly, [finished]) == (finished, []), "the control"
    CHANGES[reason](finished)
    found, doubts = reuse.find_same(record, assembly, [finished])
    assert found == finished
    assert len(doubts) == 1
    assert reason in doubts[0]


def _break_record(run_dir: Path) -> None:
    (run_dir / "record.json").write_text("{", encoding="utf-8")


def _break_config(run_dir: Path) -> None:
    (run_dir / "config.yaml").write_text("a: [", encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [
        *(partial(change_record, status=one) for one in ("failed", "interrupted", "pruned", "running")),
        *(_break_record, _break_config, shutil.rmtree),
    ],
)
def test_a_run_that_has_not_finished_or_cannot_be_read_is_not_taken(
    change: Callable[[Path], None], asked: tuple[Any, Any, Path], finished: Path
) -> None:
    change(finished)
    assert reuse.find_same(*asked[:2], [finished]) == (None, [])


@pytest.mark.parametrize(
    ("field", "name", "value"),
    [
        ("packages", "mkdocs-material", "0.1"),  # computes nothing
        # libraries set these for themselves
        ("environment", "TORCHINDUCTOR_CACHE_DIR", "/elsewhere"),
        ("environment", "PYTORCH_NVML_BASED_CUDA_CHECK", "0"),
    ],
)
def test_what_changes_no_number_may_differ(
    field: str, name: str, value: str, asked: tuple[Any, Any, Path], finished: Path
) -> None:
    if field == "environment":
        there = RunRecord.load(finished).machine["environment"]
        _differ("machine", "environment", there | {name: value})(finished)
    else:
        _differ(field, name, value)(finished)
    assert reuse.find_same(*asked[:2], [finished]) == (finished, [])


def test_an_exact_run_is_found_beside_others(asked: tuple[Any, Any, Path], tmp_path: Path) -> None:
    copies = [Path(shutil.copytree(asked[2], tmp_path / name)) for name in "abc"]
    _damage(copies[0])
    change_record(copies[2], machine={})
    assert reuse.find_same(*asked[:2], copies) == (copies[1], [])


@pytest.mark.parametrize("word", ["seed=7", "trainer.max_steps=3", "optimizer.lr=0.02"])
def test_another_config_is_another_run(word: str, first: Path) -> None:
    run, said = train("--reuse", word, run="outputs/second")
    assert run == Path("outputs/second")
    assert "no finished run has this config: training" in said


def test_other_threads_are_not_exact(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    # what is typed is not chosen by the size of a step
    monkeypatch.setenv("OMP_NUM_THREADS", str(before + 1))
    torch.set_num_threads(before + 1)
    try:
        run, said = train("--reuse", run="outputs/second")
    finally:
        torch.set_num_threads(before)
    assert run == Path("outputs/second")
    then = RunRecord.load(first).machine["threads"]
    assert f"threads: {then} then, {before + 1} now" in said


def test_uncommitted_code_of_assay_is_never_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(provenance, "assay_commit", lambda: "0123456789ab-dirty")
    train()
    run, said = train("--reuse", run="outputs/second")
    assert run == Path("outputs/second")
    assert "code: assay itself has uncommitted changes" in said
    capsys.readouterr()
    start_sweep([*SWEEP, "hydra.sweep.dir=outputs/sweep"])
    said = " ".join(capsys.readouterr().out.split())
    assert "outputs/second has this config, but is not taken for this run: code: assay itself" in said


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("trainer.max_time=01:00:00:00", "trainer.max_time: it ends by the clock"),
        ("optimizer.lr='${oc.decode:${oc.env:RATE}}'", ""),
        ("tags=[rows.csv]", ""),
    ],
)
def test_what_the_config_alone_does_not_tell(word: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATE", "0.01")
    first, _ = train(word)
    run, said = train("--reuse", word, run="outputs/second")
    assert run == (Path("outputs/second") if reason else first), said
    assert reason in said


# -- code of the user's own --------------------------------------------------------------------------------


@pytest.fixture
def lab(project: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of the project's own, under git, of another name in each test: a class is found once."""
    package = f"lab_{uuid.uuid4().hex[:8]}"
    files = {
        f"{package}/__init__.py": "",
        f"{package}/net.py": NET,
        "conf/project.yaml": f"trusted_packages: [{package}]\n",
        "conf/model/net.yaml": f"_target_: {package}.net.Net\nnum_features: ${{spec.num_features}}\n"
        "num_outputs: ${spec.num_outputs}\n",
        ".gitignore": "outputs\nloose.py\n__pycache__\n",
    }
    for name, text in files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    repository = git.Repo.init(project)
    repository.git.add("--all")
    repository.git.commit("-m", "start")
    # of the tests, the examples, and projects of other tests
    others = (Path(__file__).parents[2], project.parents[1])

    def is_own_and_no_other(file: str) -> bool:
        path = Path(file).resolve()
        is_other = not path.is_relative_to(project.parent) and any(map(path.is_relative_to, others))
        return is_users_own(file) and not is_other

    monkeypatch.setattr(reuse, "is_users_own", is_own_and_no_other)
    monkeypatch.syspath_prepend(str(project))
    return package


def train_own(*words: str, run: str = "outputs/first") -> tuple[Path, str]:
    words_typed = [word for word in QUICK if not word.startswith("model")]
    result = typed("train", *words_typed, "model=net", *words, f"hydra.run.dir={run}")
    (line,) = (line for line in result.output.splitlines() if line.startswith("run "))
    return Path(line.removeprefix("run").strip()), " ".join(result.output.split())


def test_own_code_under_git_is_the_same_until_a_line_changes(lab: str) -> None:
    first, _ = train_own()
    assert train_own("--reuse", run="outputs/second")[0] == first
    path = Path(lab, "net.py")
    path.write_text(f"{NET}# one line more\n", encoding="utf-8")
    run, said = train_own("--reuse", run="outputs/second")
    assert run == Path("outputs/second")
    assert "code: commit" in said
    # uncommitted, but recorded as a patch
    assert train_own("--reuse", run="outputs/third")[0] == run


def _ignored_by_git(lab: str) -> None:
    Path(lab, "loose.py").write_text("WIDTH = 3\n", encoding="utf-8")
    Path(lab, "__init__.py").write_text("from . import loose\n", encoding="utf-8")


def _beside_the_repository(lab: str) -> None:
    elsewhere = Path("../elsewhere").resolve()
    elsewhere.mkdir()
    (elsewhere / f"{lab}_more.py").write_text("", encoding="utf-8")
    init = f"import sys\nsys.path.append({str(elsewhere)!r})\nimport {lab}_more\n"
    Path(lab, "__init__.py").write_text(init, encoding="utf-8")


def _without_a_repository(lab: str) -> None:
    shutil.rmtree(".git")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_ignored_by_git, "code: {lab}/loose.py is not recorded"),
        (_beside_the_repository, "elsewhere/{lab}_more.py is not recorded"),
        (_without_a_repository, "is in no repository"),
    ],
)
def test_own_code_that_is_not_recorded_is_never_the_same(
    change: Callable[[str], None], reason: str, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    change(lab)
    train_own()
    run, said = train_own("--reuse", run="outputs/second")
    assert run == Path("outputs/second")
    assert reason.format(lab=lab) in said


# -- sweeps ------------------------------------------------------------------------------------------------


def events(sweep: Path) -> list[dict[str, Any]]:
    lines = (sweep / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == "end"]


def test_a_sweep_takes_what_has_finished_and_trains_the_rest(
    swept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = start_sweep([*SWEEP, "hydra.sweep.dir=outputs/b", "seed=2,3", "tags=[b]", "name=other"])
    assert result.exit_code == 0
    ends = events(Path("outputs/b"))
    assert [event["reused_from"] for event in ends] == ["outputs/a/1", ""]
    assert "reused from outputs/a/1" in capsys.readouterr().out
    assert "outputs/a/1" in Path("outputs/b/results.csv").read_text(encoding="utf-8")
    original, copied = RunRecord.load(swept / "1"), RunRecord.load(Path("outputs/b/0"))
    assert (copied.reused_from, copied.run_id, copied.name, copied.tags) == (
        "outputs/a/1",
        "0",
        "other",
        ["b"],
    )
    assert "seed=2" in copied.overrides
    assert copied.metrics == original.metrics
    assert contents(Path("outputs/b/0")) == contents(swept / "1")
    assert not list(Path("outputs/b").glob(".*.tmp"))


def test_a_reused_job_is_what_it_is_when_it_is_trained_and_whole_without_its_original(swept: Path) -> None:
    """The control: the same sweep without reuse gives the same files and tables."""
    start_sweep([*SWEEP, "hydra.sweep.dir=outputs/b", "seed=1,2"])
    start_sweep([*SWEEP, "hydra.sweep.dir=outputs/c", "seed=1,2", "hydra.sweeper.reuse=false"])
    assert [event["reused_from"] for event in events(Path("outputs/c"))] == ["", ""]
    for number in "01":
        reused, trained = (RunRecord.load(Path("outputs", sweep, number)) for sweep in "bc")
        assert reused.reused_from == f"outputs/a/{number}"
        assert contents(Path("outputs/b", number)) == contents(Path("outputs/c", number))
        assert (reused.metrics, reused.weights_sha256) == (trained.metrics, trained.weights_sha256)
    groups = [Path("outputs", sweep, "groups.csv").read_bytes() for sweep in "bc"]
    assert groups[0] == groups[1]

    moved = swept.rename("elsewhere")
    files = {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()}
    typed("report", "outputs/b")
    typed("eval", "outputs/b")
    typed("best", "outputs/b")
    typed("reproduce", "outputs/b/0")
    assert documented("eval", "outputs/b/0", "split=test")[1]
    typed("resume", "outputs/b/1", "trainer.max_epochs=3")
    assert RunRecord.load(Path("outputs/b/1")).status == "finished"
    assert files == {path: path.read_bytes() for path in files}, "resuming a copy leaves the original"


def test_a_run_whose_directory_has_gone_is_trained(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = reuse.find_same

    def find_and_lose(*arguments: Any) -> Any:
        found = find(*arguments)
        shutil.rmtree(swept)
        return found

    monkeypatch.setattr(reuse, "find_same", find_and_lose)
    result = start_sweep([*SWEEP, "hydra.sweep.dir=outputs/b", "seed=1"])
    assert [job.status for job in result.jobs] == ["finished"]
    assert [event["reused_from"] for event in events(Path("outputs/b"))] == [""]
    assert not list(Path("outputs/b").glob(".*.tmp"))


# -- two sweeps at once ------------------------------------------------------------------------------------

HOLDER = """
import fcntl
import sys
import time

file = open("outputs/.claims", "a+")
for fingerprint in sys.argv[1:]:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, int(fingerprint[:15], 16))
print("holds", flush=True)
time.sleep(600)
"""


@contextmanager
def claimed_elsewhere(*fingerprints: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that claims jobs, as the sweep that trains them."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, *fingerprints], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        yield holder
    finally:
        holder.kill()
        holder.communicate()


def wait_until(holds: Callable[[], bool], act: Callable[[], object] = bool) -> None:
    while not holds():
        time.sleep(0.02)
    act()


def when(holds: Callable[[], bool], act: Callable[[], object]) -> threading.Thread:
    """Act beside the test's own sweep, once something holds."""

    thread = threading.Thread(target=wait_until, args=(holds, act), daemon=True)
    thread.start()
    return thread


def ended(sweep: str) -> list[dict[str, Any]]:
    with suppress(FileNotFoundError, ValueError):  # a line that is being written
        return events(Path(sweep))
    return []


def test_a_sweep_waits_for_a_job_that_another_one_trains(capsys: pytest.CaptureFixture[str]) -> None:
    """It trains what is left meanwhile, and takes the job of the other sweep, which is not in its list."""
    with Forks() as forks:
        forks.start(*SWEEP, cwd=Path.cwd(), module="tests.sweep.waiting_sweep")
        wait_until(Path("fits").exists)
        when(lambda: len(ended("outputs/a")) == 1, Path("go").touch)
        result = start_sweep([*SWEEP, "hydra.sweep.dir=outputs/a", "seed=1,3"])
        assert forks.wait().code == 0
    assert result.exit_code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "job 0 waits: another sweep trains the same job" in said
    taken = {event["number"]: event["reused_from"] for event in events(Path("outputs/a"))}
    assert taken == {1: "", 0: "outputs/other/0"}
    assert {event["reused_from"] for event in events(Path("outputs/other"))} == {""}
    assert contents(Path("outputs/a/0")) == contents(Path("outputs/other/0"))
    # what finishes after a sweep has started is seen, too
    result = start_sweep([*SWEEP, "hydra.sweep.dir=outputs/b", "seed=1,2,3"])
    assert all(event["reused_from"] for event in events(Path("outputs/b")))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What sweeps print beside their jobs."""
    texts: list[str] = []
    monkeypatch.setattr(SweepProgress, "print_message", lambda _, text: texts.append(text))
    return texts


@pytest.fixture
def fingerprints(two_seeds: Path) -> list[str]:
    """Those of the jobs `seed=1,2`; none has been trained here."""
    Path("outputs").mkdir()
    return [RunRecord.load(two_seeds / number).fingerprint for number in "01"]


def test_a_job_whose_other_sweep_was_killed_is_trained(fingerprints: list[str], told: list[str]) -> None:
    with claimed_elsewhere(*fingerprints) as holder:
        when(lambda: len(told) == 2, holder.kill)
        result = start_sweep([*SWEEP, "hydra.sweep.dir=outputs/a", "seed=1,2"])
    assert [job.status for job in result.jobs] == ["finished", "finished"]
    assert [event["reused_from"] for event in events(Path("outputs/a"))] == ["", ""]
    assert len(told) == 2


def test_a_sweep_that_waits_is_interrupted_at_once_and_resumes(
    fingerprints: list[str], told: list[str]
) -> None:
    with claimed_elsewhere(fingerprints[0]):
        reached = when(lambda: len(ended("outputs/a")) == 1, lambda: os.kill(os.getpid(), signal.SIGINT))
        result = start_sweep([*SWEEP, "hydra.sweep.dir=outputs/a", "seed=1,2"])
        reached.join()
        assert result.exit_code == 130
        assert told[0].startswith("job 0 waits")
        # without reuse nothing is waited for
        result = start_sweep([*SWEEP, "hydra.sweep.dir=outputs/b", "seed=1", "hydra.sweeper.reuse=false"])
        assert result.exit_code == 0
    result = resume_sweep(Path("outputs/a"))
    assert [job.status for job in result.jobs] == ["finished", "finished"]


def test_a_sweep_that_cannot_take_what_it_waited_for_waits_no_more(
    fingerprints: list[str], told: list[str]
) -> None:
    """Such as one whose code is in no repository: it would wait for each job and then train it."""
    with claimed_elsewhere(fingerprints[0]) as first, claimed_elsewhere(fingerprints[1]) as second:
        when(lambda: len(told) == 2, first.kill)
        result = start_sweep([*SWEEP, "hydra.sweep.dir=outputs/a", "seed=1,2"])
        assert second.poll() is None
    assert [job.status for job in result.jobs] == ["finished", "finished"]


def test_a_sweep_may_lie_in_the_current_directory() -> None:
    assert start_sweep([*SWEEP, "hydra.sweep.dir=.", "seed=1,2"]).exit_code == 0


def test_a_sweep_says_what_reuse_may_be() -> None:
    result = typed("train", "-m", *SWEEP, "seed=1,2", "hydra.sweeper.reuse=maybe", code=2)
    assert "hydra.sweeper.reuse" in result.output
    result = typed("train", "-m", *SWEEP, "seed=1,2", "hydra.sweeper.reus=false", code=2)
    assert "did you mean 'hydra.sweeper.reuse'?" in " ".join(result.output.split())


@pytest.mark.parametrize("words", [("-m", "seed=1,2"), ("device=ddp_cpu", "trainer.devices=2")])
def test_the_option_is_for_one_run_in_one_process(words: tuple[str, ...]) -> None:
    result = typed("train", *QUICK, *words, "--reuse", code=2)
    assert "--reuse" in result.output


def test_an_interrupted_sweep_ends_with_what_it_has_reused(swept: Path) -> None:
    start_sweep([*SWEEP, "hydra.sweep.dir=outputs/b", "seed=1,2"])
    table = Path("outputs/b/results.csv").read_bytes()
    journal = Path("outputs/b/journal.jsonl")
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    # as a kill leaves it that came before the end was written
    journal.write_text("".join(lines[:-1]), encoding="utf-8")
    resume_sweep(Path("outputs/b"))
    assert Path("outputs/b/results.csv").read_bytes() == table


def test_a_trial_that_a_pruner_watches_is_trained() -> None:
    """The pruner needs the score after each validation; without a pruner the same trial is reused."""
    study = (*SWEEP, "hydra/sweeper=optuna", "hydra.sweeper.num_trials=1", "optimizer.lr=choice(0.01)")
    start_sweep([*study, "hydra.sweep.dir=outputs/a"])
    start_sweep([*study, "hydra.sweep.dir=outputs/b", "hydra/sweeper/pruner=median"])
    start_sweep([*study, "hydra.sweep.dir=outputs/c"])
    assert [event["reused_from"] for event in events(Path("outputs/b"))] == [""]
    assert [event["reused_from"] for event in events(Path("outputs/c"))] != [""]


def test_python_takes_a_finished_run_as_the_command_does(first: Path) -> None:
    result = assay.train([*QUICK, "hydra.run.dir=outputs/second"], reuse=True)
    assert (result.run_dir, result.reused_from) == (first, str(first))
    assert result.module is None
    assert result.metrics == RunRecord.load(first).metrics
    for given in ({"callbacks": [Callback()]}, {"model": torch.nn.Linear(2, 1)}):
        with pytest.raises(ConfigError, match="may change what is trained"):
            assay.train([*QUICK], reuse=True, **given)
