"""The environment of a run: what a record may ask for, what cannot be had, and a run in one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.command import documented, typed
from tests.forks import Forks

from assay.errors import AssayError
from assay.record.provenance import packages
from assay.record.run_record import RunRecord
from assay_lab import environment
from assay_lab.environment import build_environment, read_requirements

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON = ".".join(map(str, sys.version_info[:3]))


def record(python: str = PYTHON, **recorded: str) -> RunRecord:
    fields: dict[str, Any] = {"run_id": "a", "name": "a", "status": "finished", "started": "", "seed": 0}
    versions = {name.replace("_", "-"): version for name, version in recorded.items()}
    return RunRecord(
        **fields, fingerprint="", config_fingerprint="", packages=versions, machine={"python": python}
    )


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Environments are built in a folder of the test."""
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "environments"


class Uv:
    """Stands for uv: what it was asked, and what it cannot find."""

    def __init__(self, *missing: str, python: str = "") -> None:
        self.missing = missing
        self.python = python
        self.asked: list[tuple[str, ...]] = []
        self.requirements = ""

    def __call__(self, _: str, *arguments: str) -> str:
        self.asked.append(arguments)
        if arguments[0] == "venv":
            (Path(arguments[-1]) / "lib" / "python3" / "site-packages").mkdir(parents=True)
            return self.python
        self.requirements = Path(arguments[-1]).read_text(encoding="utf-8")
        for line in self.missing:
            if line in self.requirements.splitlines():
                return (
                    "error: No solution found when resolving dependencies cause: Because there is no version "
                    f"of {line} and you require {line}, your requirements are unsatisfiable."
                )
        return ""


@pytest.fixture
def replace_uv(monkeypatch: pytest.MonkeyPatch) -> Callable[[Uv], Uv]:
    def replace(uv: Uv) -> Uv:
        monkeypatch.setattr(environment, "_run", uv)
        monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/uv")
        return uv

    return replace


HOSTILE = [
    ("--index-url", "1.0"),
    ("--index-url=https://example.org/simple", "1.0"),
    ("-r", "1.0"),
    ("-e .", "1.0"),
    (".", "1.0"),
    ("../numpy", "1.0"),
    ("/numpy", "1.0"),
    ("https://example.org/numpy-1.0.tar.gz", "1.0"),
    ("git+https://example.org/numpy", "1.0"),
    ("numpy @ https://example.org/numpy.whl", "1.0"),
    ("numpy\n--index-url https://example.org", "1.0"),
    ("numpy\n", "1.0"),
    ("numpy[extra]", "1.0"),
    ("ｎumpy", "1.0"),
    ("", "1.0"),
    ("numpy", ""),
    ("numpy", "1.0 --index-url https://example.org"),
    ("numpy", "1.0\n--index-url https://example.org"),
    ("numpy", "1.0; python_version > '3'"),
    ("numpy", "*"),
    ("numpy", "1.*"),
    ("numpy", ">=1.0"),
    ("numpy", "@ file:///tmp/numpy"),
    ("numpy", "../1.0"),
]


@pytest.mark.parametrize(("name", "version"), HOSTILE)
def test_only_names_and_versions_pass(
    name: str, version: str, replace_uv: Callable[[Uv], Uv], own_cache: Path
) -> None:
    uv = replace_uv(Uv())
    run = record(iniconfig="2.0.0")
    run.packages[name] = version
    with pytest.raises(AssayError, match="names a package that is none") as caught:
        build_environment(run, trust_code=True)
    assert "\n" not in caught.value.message
    assert not uv.asked
    assert not own_cache.exists()


@pytest.mark.parametrize("python", ["", "3", "/bin/sh", "--help", f"{PYTHON}\n", "pypy3.11", "2.7.18"])
def test_only_a_version_of_python_passes(python: str, replace_uv: Callable[[Uv], Uv]) -> None:
    uv = replace_uv(Uv())
    with pytest.raises(AssayError, match="record is damaged: it names Python"):
        build_environment(record(python, numpy=packages()["numpy"]), trust_code=True)
    assert not uv.asked


def test_names_and_versions_are_written_as_the_index_writes_them() -> None:
    odd = {"Typing_Extensions": "v4.99.0", "zope.interface": "7.1-2", "torch": "2.99.0+cu132"}
    assert read_requirements(odd) == {
        "typing-extensions": "4.99.0",
        "zope-interface": "7.1.post2",
        "torch": "2.99.0+cu132",
    }


def test_versions_that_assay_refuses_are_refused() -> None:
    with pytest.raises(AssayError, match=r"the run had lightning 2\.6\.2, and this assay needs .*>=2\.6\.6"):
        read_requirements({"lightning": "2.6.2"})


def test_packages_that_are_not_here_ask_for_trust(replace_uv: Callable[[Uv], Uv]) -> None:
    uv = replace_uv(Uv())
    run = record(numpy=packages()["numpy"], no_such_thing_at_all="1.0")
    with pytest.raises(AssayError, match=r"not installed here: no-such-thing-at-all==1\.0") as caught:
        build_environment(run, trust_code=False)
    assert "--trust-code" in caught.value.hint
    assert not uv.asked
    build_environment(run, trust_code=True)
    assert "no-such-thing-at-all==1.0" in uv.requirements


def test_environments_are_listed_and_cleared(replace_uv: Callable[[Uv], Uv], own_cache: Path) -> None:
    replace_uv(Uv())
    build_environment(record(numpy=packages()["numpy"]), trust_code=False)
    (folder,) = own_cache.iterdir()
    assert f"{folder}: an environment" in " ".join(typed("cache").stdout.split())
    _, document = documented("cache", "clear")
    assert list(document["environments"]) == [str(folder)]
    assert not [*own_cache.iterdir()]
    assert str(folder) not in typed("cache").stdout


def test_without_uv_one_line_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AssayError, match="needs uv") as caught:
        build_environment(record(), trust_code=False)
    assert caught.value.hint == "pip install uv"


def test_all_that_cannot_be_had_is_named_and_nothing_is_left(
    replace_uv: Callable[[Uv], Uv], own_cache: Path
) -> None:
    replace_uv(Uv("numpy==98.0", "pandas==97.0"))
    with pytest.raises(AssayError) as caught:
        build_environment(record(numpy="98.0", pandas="97.0", rich="13.9"), trust_code=False)
    assert caught.value.message == "cannot be had: numpy==98.0, pandas==97.0"
    assert "UV_INDEX" in caught.value.hint
    assert list(own_cache.iterdir()) == []


def test_a_python_that_cannot_be_had_is_named(replace_uv: Callable[[Uv], Uv], own_cache: Path) -> None:
    replace_uv(Uv(python="error: No interpreter found"))
    with pytest.raises(AssayError, match=r"Python 3\.11\.99 cannot be had: error: No interp") as caught:
        build_environment(record("3.11.99"), trust_code=False)
    assert caught.value.hint == "uv python install 3.11.99"
    assert list(own_cache.iterdir()) == []


def test_an_environment_is_built_once(replace_uv: Callable[[Uv], Uv], own_cache: Path) -> None:
    uv = replace_uv(Uv())
    run = record(numpy="98.0", assay="0.0.1")
    first, notes = build_environment(run, trust_code=False)
    asked = len(uv.asked)
    assert build_environment(run, trust_code=False) == (first, notes)
    assert len(uv.asked) == asked
    assert uv.requirements.splitlines()[1:] == ["numpy==98.0"], "assay is the one that is here"
    assert [path.name for path in own_cache.iterdir()] == [first.parents[1].name]
    assert build_environment(record(numpy="98.1"), trust_code=False)[0] != first
    # no option of uv's that names an address, for these are the user's own
    assert not re.search(r"index|find-links|http", " ".join(word for words in uv.asked for word in words))


def test_a_project_that_is_installed_from_its_folder_is_left_out(
    replace_uv: Callable[[Uv], Uv], monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = replace_uv(Uv())
    monkeypatch.setattr(environment, "_is_local", lambda name: name in ("rich", "assay"))
    _, notes = build_environment(record(rich="13.9", numpy="98.0", assay="0.1.0"), trust_code=False)
    assert "rich" not in uv.requirements
    assert "left out: rich" in notes[1]


def test_a_run_is_reproduced_with_the_python_of_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my project"
    folder.mkdir()
    quick = ("data=iris", "debug=one_batch", "device=cpu", "callbacks=[]")
    typed("train", *quick, "hydra.run.dir=runs/a", folder=folder)
    python = Path("environment", "bin", "python")
    of_caller = tmp_path / "packages of the caller"
    (of_caller / "torch-0.1.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(of_caller)
    monkeypatch.setenv("PYTHONPATH", str(of_caller))
    monkeypatch.setattr(
        "assay_lab.reproduce.build_environment", lambda *_, **__: (python, ["environment: HERE"])
    )

    def run_in_fork(children: list[tuple[tuple[str, ...], dict[str, str]]]) -> tuple[list[int], str]:
        [(command, environment)] = children
        assert command[:3] == (str(python), "-P", "-m")
        assert str(of_caller) not in environment["PYTHONPATH"], "they would be taken for the run's"
        with Forks(**environment) as forks:
            ended = forks.command(*command[4:], cwd=folder, module=command[3])
        return [ended.code], ""

    monkeypatch.setattr("assay_lab.run_side.run_children", run_in_fork)
    said = typed("reproduce", "runs/a", "--environment", folder=folder).output
    assert "note: environment: HERE" in said
    assert "identical" in said
    said = typed("reproduce", "runs/a", "--enviroment", folder=folder, code=2).output
    assert "--environment" in said


@pytest.mark.long
def test_uv_builds_an_environment_in_which_assay_is_found(own_cache: Path) -> None:
    """The real one, of one package from the index that the user's configuration names."""
    python, _ = build_environment(record(iniconfig="2.0.0"), trust_code=True)
    code = (
        "import iniconfig, assay, importlib.metadata as m; print(iniconfig.__file__, m.version('iniconfig'))"
    )
    done = subprocess.run([python, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "2.0.0"
    assert str(own_cache) in done.stdout
    with pytest.raises(AssayError, match=r"cannot be had: iniconfig==99\.0, idna==0\.0\.99"):
        build_environment(record(iniconfig="99.0", idna="0.0.99"), trust_code=True)
    assert len([*own_cache.iterdir()]) == 1
