"""The wheel holds everything: built, installed by itself, used from another folder."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from assay.paths import CONF_DIR
from assay.rooms import ROOMS

ROOT = Path(__file__).parents[2]
RUN = "from assay.cli.app import main; main()"


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but what the wheel installs."""
    uv = os.environ.get("UV") or shutil.which("uv")
    assert uv, "README's test command installs uv"
    target = tmp_path_factory.mktemp("installed")
    install = (uv, "pip", "install", "--offline", "--no-deps", "--python", sys.executable, "--target")
    run(*install, target, wheel, cwd=target)
    return target


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "somewhere else"
    folder.mkdir()
    return folder


def test_every_config_and_every_module_is_inside(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    configs = {f"assay/conf/{path.relative_to(CONF_DIR).as_posix()}" for path in CONF_DIR.rglob("*.yaml")}
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert len(configs) > 100
    assert configs <= inside
    assert modules <= inside
    assert "assay/py.typed" in inside
    assert "assay/COMMIT" in inside
    assert "assay_report/templates/base.html" in inside
    packages = tuple(f"{name}/" for name in ("assay", *ROOMS))
    others = {name for name in inside if not name.startswith(packages) and ".dist-info/" not in name}
    assert not others, "tests and benchmarks are not shipped"


def test_the_installed_package_uses_its_own_configs(installed: Path, elsewhere: Path) -> None:
    code = "import assay.paths, assay.cli.app; print(assay.paths.CONF_DIR); print(assay.cli.app.__file__)"
    out = run(sys.executable, "-P", "-c", code, cwd=elsewhere, PYTHONPATH=str(installed))
    conf, cli = map(Path, out.splitlines())
    assert conf == installed.resolve() / "assay" / "conf"
    assert cli.is_relative_to(installed.resolve())


@pytest.mark.long
def test_runs_a_task_and_a_launcher_of_ones_own(installed: Path, elsewhere: Path) -> None:
    """`examples/my_project`, in the processes of the sweep, of its check and of its job."""
    project = elsewhere / "my project"
    shutil.copytree(ROOT / "examples" / "my_project", project, ignore=shutil.ignore_patterns("outputs"))
    tell = "import os, pathlib, assay; pathlib.Path(f'process_{os.getpid()}.txt').write_text(assay.__file__)"
    (project / "my_project" / "__init__.py").write_text(tell, encoding="utf-8")
    words = ("train", "-m", "data=diabetes_grades", "optimizer.lr=0.1", "seed=0", "hydra/launcher=nice")
    run(
        *(sys.executable, "-P", "-c", RUN, *words, "trainer.max_epochs=2", "hydra.sweep.dir=sweep"),
        cwd=project,
        PYTHONPATH=str(installed),
    )
    with (project / "sweep" / "results.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert 0 < float(row["test/grade_error"]) < 2
    told = [path.read_text(encoding="utf-8") for path in project.rglob("process_*.txt")]
    assert len(told) == 3
    assert {*told} == {str(installed.resolve() / "assay" / "__init__.py")}
