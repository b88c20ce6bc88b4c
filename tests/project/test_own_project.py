"""`assay new`, `assay add` and `assay schema`: a project works at once, and editors tell its mistakes."""

from __future__ import annotations

import fnmatch
import json
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator  # type: ignore[import-untyped]  # it ships no types
from omegaconf import OmegaConf
from referencing import Registry, Resource
from tests.command import typed

from assay.check.signature import check_signatures
from assay.compose.compose import compose_job
from assay.errors import AssayError
from assay.paths import CONF_DIR
from assay.run.train import train

ADDED = {
    "model": "gate",
    "loss": "power",
    "data": "rings",
    "task": "grade",
    "metric": "true_share",
    "callback": "norms",
    "optimizer": "lion",
    "scheduler": "hold",
    "augment": "scale",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a component of each kind, in a folder with a space in its name."""
    with chdir(tmp_path_factory.mktemp("some where")):
        typed("new", "own-wines", "--kind", "table")
        written = [path for path in Path("own-wines").rglob("*") if path.is_file()]
        assert len([path for path in written if ".git" not in path.parts]) == 10
        with chdir("own-wines"):
            for kind, name in ADDED.items():
                typed("add", kind, name)
            typed("schema")
            return Path.cwd()


@pytest.fixture(scope="module")
def validator(project: Path) -> Any:
    """The errors of YAML at a path, by the schema that an editor takes for it."""
    schemas = {
        path.name: json.loads(path.read_text(encoding="utf-8")) for path in (project / ".schemas").iterdir()
    }
    registry: Any = Registry().with_resource(
        "definitions.json", Resource.from_contents(schemas["definitions.json"])
    )
    mapping = json.loads((project / ".vscode/settings.json").read_text(encoding="utf-8"))["yaml.schemas"]

    def errors(path: str, text: str) -> list[str]:
        depth = path.count("/")
        fits = {
            file
            for file, globs in mapping.items()
            for glob in globs
            if glob.count("/") == depth and fnmatch.fnmatch(path, glob)
        }
        assert len(fits) == 1, f"{path}: {fits}"
        node = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
        checked = Draft7Validator(schemas[Path(fits.pop()).name], registry=registry)
        return [error.message for error in checked.iter_errors(node)]

    return errors


def test_every_file_of_assay_and_of_the_project_fits_its_schema(project: Path, validator: Any) -> None:
    seen = 0
    for folder in (CONF_DIR, project / "conf"):
        for path in folder.rglob("*.yaml"):
            name = f"conf/{path.relative_to(folder).as_posix()}"
            assert not validator(name, path.read_text(encoding="utf-8") or "{}"), name
            seen += 1
    assert seen > 180


ACCEPTED = [
    ("model/a", "_target_: assay.model.mlp.MLP\nhidden: ${oc.env:H}\ndropout: ???\nnum_outputs: 3"),
    (
        "model/a",
        "_target_: torch.nn.Sequential\n_args_:\n- _target_: torch.nn.Flatten\n- _target_: torch.nn.GELU",
    ),
    ("optimizer/a", "_target_: torch.optim.AdamW\n_partial_: true\nlr: auto\nbetas: [0.9, '${x}']"),
    (
        "experiment/a",
        "defaults: [{override /model: mlp}, {override /callbacks: [default, ema]}]\nmodel: {hidden: [8]}",
    ),
    ("experiment/a", "defaults: [{override /data: table}]\ndata: {source: {path: a.csv, target: [a, b]}}"),
    ("data/a", "defaults: [table, _self_, {override /model@_global_.model: mlp}]\nsource: {path: a.csv}"),
    ("trainer/a", "defaults: [default, _self_]\nmicro_batch: auto\nmax_epochs: 3"),
    ("callbacks/a", "_target_: lightning.pytorch.callbacks.EarlyStopping\nmode: force_min\npatience: 3"),
]
REFUSED = [
    ("model/a", "_target_: assay.model.mlp.MLP\nhiden: [3]", "hiden"),
    ("model/a", "_target_: assay.model.mlp.MLP\ndropout: high", "high"),
    ("model/a", "_target_: assay.model.mlp.MPL", "MPL"),
    ("model/a", "_target_: own_wines.gate.Gate\nwdth: 3", "wdth"),
    ("model/a", "_target_: own_wines.gate.Gate\nwidth: wide", "wide"),
    (
        "model/a",
        "_target_: torch.nn.Sequential\n_args_:\n- _target_: torch.nn.Linear\n  in_feature: 3",
        "in_feature",
    ),
    ("model/a", "_target_: torch.nn.Sequential\n_partial_: 3", "3"),
    ("optimizer/a", "_target_: torch.optim.AdamW\nbetas: 0.9", "0.9"),
    ("optimizer/a", "_target_: torch.optim.AdamW\nparams: []", "params"),
    ("experiment/a", "optimzer: {lr: 0.1}", "optimzer"),
    ("experiment/a", "defaults: [{override /model: mpl}]", "mpl"),
    ("experiment/a", "defaults: [{override /model: mlp}]\nmodel: {widhts: [8]}", "widhts"),
    ("experiment/a", "trainer: {max_epoch: 3}", "max_epoch"),
    ("data/a", "defaults: [table, _self_]\nsplit: {vall: 0.2}", "vall"),
    ("device/a", "acelerator: cpu", "acelerator"),
    ("project", "trusted_package: [a]", "trusted_package"),
]


@pytest.mark.parametrize(("file", "text"), ACCEPTED)
def test_what_hydra_takes_is_accepted(file: str, text: str, validator: Any) -> None:
    assert not validator(f"conf/{file}.yaml", text)


@pytest.mark.parametrize(("file", "text", "named"), REFUSED)
def test_a_mistake_is_named(file: str, text: str, named: str, validator: Any) -> None:
    assert named in " ".join(validator(f"conf/{file}.yaml", text))


VALUES = ["true", "3", "0.5", "text", "null", "[1]", "[0.5, 1.0]", "[a]", "{a: 1}"]


@pytest.mark.parametrize(
    ("group", "option", "keys"),
    [
        ("model", "mlp", ("hidden", "activation", "dropout", "norm", "clip")),
        ("optimizer", "sgd", ("lr", "momentum", "nesterov")),
        ("loss", "cross_entropy", ("label_smoothing", "class_weight")),
        ("callbacks", "ema", ("decay", "warmup_fraction", "use_buffers")),
    ],
)
def test_types_are_those_that_check_takes(
    group: str, option: str, keys: tuple[str, ...], validator: Any
) -> None:
    config = compose_job([f"{group}=[{option}]" if group == "callbacks" else f"{group}={option}"]).to_config()
    node = config[group][option] if group == "callbacks" else config[group]
    for key in keys:
        written = node[key]
        for value in VALUES:
            node[key] = OmegaConf.create(f"x: {value}").x
            try:
                check_signatures(config, [group])
            except AssayError:
                fits = False
            else:
                fits = True
            told = validator(f"conf/{group}/a.yaml", f"_target_: {node._target_}\n{key}: {value}")
            assert bool(told) != fits, f"{key}: {value}"
            node[key] = written


@pytest.mark.long
def test_parts_of_the_project_train(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    fast = ["device=cpu", "baseline=none", "trainer.max_epochs=1"]
    parts = "model=gate loss=power metrics=true_share optimizer=lion scheduler=hold augment=scale"
    result = train(["experiment=first", *parts.split(), "callbacks=[default,norms]", *fast])
    assert result.status == "finished"
    assert {"test/true_share", "weight_norm"} <= set(result.metrics)
    assert (
        train(["data=rings", "trainer.max_epochs=20", "device=cpu", "baseline=none"]).metrics["test/accuracy"]
        > 0.9
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_tests_of_the_project_pass(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("kind", ["image", "text", "blank"])
def test_every_kind_of_project_trains(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    typed("new", f"own_{kind}", "--kind", kind)
    monkeypatch.chdir(f"own_{kind}")
    typed("add", "model", "gate")
    train([])
    for words in (["experiment=first"], ["experiment=first", "model=gate"]):
        assert train([*words, "trainer.max_epochs=1", "device=cpu"]).status == "finished"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json", "another module"),
        ("torch", "another module"),
        ("pytest", "another module"),
        ("tests", "another module or folder"),
        ("class", "no keyword"),
        ("a/b", "not a path"),
        ("..", "not a path"),
        ("my folder/b", "cd 'my folder' && assay new b"),
        ("1st", "lower-case"),
        ("my project", "lower-case"),
        ("taken", "is not empty"),
        ("file", "not a folder"),
    ],
)
def test_a_name_that_cannot_be(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/notes.txt").touch()
    (tmp_path / "file").touch()
    assert message in typed("new", name, code=2).output
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "notes.txt", "taken"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("model net", "exists; refusing to overwrite"),
        ("model mlp", "assay has model=mlp already"),
        ("model MyNet", "assay add model my_net"),
        ("loss class", "assay add loss my_loss"),
        ("model ../x", "assay add model x"),
    ],
)
def test_a_component_that_cannot_be(
    words: str, message: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    before = sorted(project.rglob("*"))
    assert message in typed("add", *words.split(), code=2).output
    assert sorted(project.rglob("*")) == before


def test_a_folder_without_a_project_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "assay new NAME" in typed("add", "model", "gate", code=2).output
    assert "assay new NAME" in typed("schema", code=2).output
    assert not list(tmp_path.iterdir())


def test_without_git_a_note_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "git is not installed" in typed("new", "own_digits").output
    assert not Path("own_digits/.git").exists()


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        (None, ""),
        (
            {"url": "file:///a%20b/assay", "dir_info": {"editable": True}},
            'path = "/a b/assay", editable = true',
        ),
        ({"url": "file:///a/assay-1.whl", "archive_info": {}}, 'path = "/a/assay-1.whl"'),
        (
            {"url": "https://x.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "1f"}},
            'git = "https://x.org/a.git", rev = "1f"',
        ),
    ],
)
def test_a_project_takes_assay_from_where_it_came(
    origin: dict[str, Any] | None, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        version = "1.2"

        def read_text(self, name: str) -> str | None:  # noqa: ARG002 - as `Distribution` has it
            return None if origin is None else json.dumps(origin)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Installed())
    said = typed("new", "own_digits").output
    written = Path("own_digits/pyproject.toml").read_text(encoding="utf-8")
    assert (f"assay = {{ {source} }}" in written) == bool(source)
    assert 'dependencies = ["assay>=1.2"]' in written
    assert ("package index" in said) == (not source)
