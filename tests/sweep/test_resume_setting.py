"""A sweep directory may be anybody's: what it asks to be trusted has to be confirmed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.errors import AssayError
from assay.record.journal import Journal
from assay.sweep.session import merged, setting_of, without_trust

if TYPE_CHECKING:
    from assay.sweep.session import Setting


class Sweeps:
    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def go_on(
        self,
        *typed: str,
        cwd: Path,
        began: Path,
        config_dir: str = "",
        flag: Path | None = None,
        then: str = "",
        name: str = "",
    ) -> Setting:
        self.count += 1
        sweep = self.folder / (name or f"sweep {self.count}")
        (sweep / "journal.jsonl").unlink(missing_ok=True)
        words = [one for one in then.split(" ") if one]
        journal = Journal.create(sweep, overrides=words, config_dir=config_dir, cwd=str(began), started="")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(cwd)
            return setting_of(sweep, journal, typed, flag)


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
    assert "asks for what only you can allow" in call.value.message
    return call.value.hint


def test_from_the_project_nothing_new_is_typed(sweeps: Sweeps, lab: Path) -> None:
    assert sweeps.go_on(cwd=lab, began=lab).cwd == lab
    (lab / "own").mkdir()
    assert sweeps.go_on(cwd=lab, began=lab, config_dir=str(lab / "own")).config_dir == lab / "own"
    assert sweeps.go_on(cwd=lab, began=lab, then="trusted_packages=[lab] seed=1,2").config_dir is None


def test_from_anywhere_where_nothing_is_trusted(sweeps: Sweeps, lab: Path, empty: Path) -> None:
    assert sweeps.go_on(cwd=lab, began=empty).cwd == empty
    assert sweeps.go_on(cwd=empty, began=empty / "gone").cwd == empty


def test_another_project_has_to_be_gone_to(sweeps: Sweeps, lab: Path, empty: Path) -> None:
    with pytest.raises(AssayError) as caught:
        sweeps.go_on("seed=1", cwd=empty, began=lab)
    hint = asked(caught)
    assert f"cd {lab} && assay resume '{sweeps.folder}/sweep 1' seed=1" in hint


def test_a_config_folder_is_named(sweeps: Sweeps, lab: Path, empty: Path) -> None:
    with pytest.raises(AssayError) as caught:
        sweeps.go_on(cwd=empty, began=empty, config_dir=str(lab / "conf"))
    assert f"--config-dir {lab / 'conf'}" in asked(caught)
    said = sweeps.go_on(cwd=empty, began=empty, config_dir=str(lab / "conf"), flag=lab / "conf")
    assert said.config_dir == lab / "conf"
    # A folder that the sweep has brought along, however it calls the place where it was begun.
    (lab / "sweep/conf").mkdir(parents=True)
    for began in (lab, Path(), lab / "gone"):
        with pytest.raises(AssayError):
            sweeps.go_on(cwd=lab, began=began, config_dir=str(lab / "sweep/conf"), name="lab/sweep")
    # One that lies below this directory by chance, of a sweep that was begun elsewhere.
    with pytest.raises(AssayError):
        sweeps.go_on(cwd=lab.parent, began=empty, config_dir=str(lab / "conf"))


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


def test_what_was_trusted_before_is_left_out() -> None:
    words = ["seed=1", "trusted_packages=[a]", "++trusted_packages=[b]", "model.trusted_packages=[c]"]
    assert without_trust(words) == ["seed=1", "model.trusted_packages=[c]"]
    assert merged([["a=1", "b=1"], ["+a=2"]]) == ["b=1", "+a=2"]
