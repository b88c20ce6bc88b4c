"""Commands of the site's reference pages run as they stand, in a folder that holds what the pages talk of.

Long proofs: every run of the tests only reads them (`test_readme`). Pages for newcomers build a folder of
their own (`test_pages`); a few have a test of their own (`ELSEWHERE`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits, load_wine  # type: ignore[import-untyped]  # it ships no types
from tests.contract.test_pages import invoke, patients
from tests.contract.test_readme import ELSEWHERE, PAGES, ROOT, indented
from tests.data.test_shards import write_shards, write_tars
from tests.experiment.test_examples import write_houses, write_photos

if TYPE_CHECKING:
    from pathlib import Path

NOT_HERE = {
    r"device=gpu|device=ddp( |$)|trainer.devices=8|fsdp2 (precision|trainer.strategy)": "GPUs; composed",
    r"srun |torchrun|-m assay|hydra/launcher=(slurm|ray)": "tests/run/test_nodes.py, tests/sweep",
    r"\$RUN": "a script; test_pages.py and tests/run/test_nodes.py",
    r"s3://": "a bucket; tests/data/test_shards.py reads a local one",
    r"model.weights=": "weights cannot be downloaded; tests/training/test_callbacks.py",
    r"model=wide|diabetes_grades|digit_gan|noise.npy": "tests/experiment of the projects in examples",
    r"…|GROUP|VERB|KEY|RUN INPUT|NEW_INPUTS|METRIC|-m$": "says how a command is put together",
    r"num_nodes": "tests/run/test_nodes.py",
    r"resume RUN trainer.devices=2": "a run that was stopped; tests/device/test_fsdp2.py",
}
"""Commands that this machine cannot run, and why."""
RUNS = {
    "language_models": "outputs/gpt",
    "self_supervision": "outputs/simclr",
    "data.source.root=other_photos": "outputs/photos/my_run",
    "data.source.path=wine.parquet": "outputs/wine",
    "optimizer.lr=0.0001": "outputs/diverged",
    "trainer.devices=4": "outputs/new",
}
"""What `RUN` is on a page, or in a command with a word."""
SHELL = re.compile(r"[|>]|^(\w+=|eval|pip|export)")


def commands(page: str) -> list[str]:
    """Lines of a page's code blocks and commands within its text, without comments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = [re.sub(r"  +#.*", "", line) for line in indented(text)]
    found = [line.strip() for line in lines if re.search(r"(^|\s|\()assay [a-z-]", line)]
    found += re.findall(r"`(assay [a-z]+ [^`]+)`", text.replace("\n", " "))
    return [command.removeprefix("uv run ") for command in dict.fromkeys(found)]


def name_paths(page: str, text: str) -> str:
    """A command with the paths of the prepared folder in place of a page's."""
    run = next((run for part, run in RUNS.items() if part in (page, *text.split())), "outputs/my_run")
    text = re.sub(r"outputs/(digits|digits_mlp|stdlib_gpt)/(2026[\w/-]+|sweeps/\w+|…)", run, text)
    text = re.sub(r"\bruns/first\b|\bRUN\b", run, text)
    text = re.sub(r"\bSWEEP\b|\bruns/width\b", "outputs/my_sweep", text)
    text = text.replace("outputs/a outputs/b", "outputs/my_run outputs/wine")
    return text.replace("compare A B", "compare outputs/my_run outputs/wine")


def cases() -> list[tuple[str, str]]:
    pages = [page for page in PAGES if page.startswith("docs/") and page[5:-3] not in {*ELSEWHERE, "scores"}]
    shown = [(page[5:-3], command) for page in pages for command in commands(page)]
    runnable = [case for case in shown if not any(re.search(key, case[1]) for key in NOT_HERE)]
    return list({name_paths(page, text): (page, text) for page, text in runnable}.values())


CASES = cases()


def write_data(folder: Path) -> None:
    """The tables, pictures, texts and arrays of the reader's."""
    patients(folder, "recipes")
    cancer = pd.read_csv(folder / "patients.csv")
    cancer.to_csv(folder / "new.csv", index=False)
    cancer.to_parquet(folder / "new_rows.parquet")
    visits = cancer.iloc[:, -6:].assign(patient=[f"p{number // 3}" for number in range(len(cancer))])
    visits["split"] = np.random.default_rng(0).choice(
        ["train", "val", "test"], len(visits), p=[0.6, 0.2, 0.2]
    )
    pd.concat([visits, visits[:60]]).to_csv(folder / "visits.csv", index=False)
    write_houses(folder / "houses.csv")
    houses = pd.read_csv(folder / "houses.csv")
    houses.to_csv(folder / "april.csv", index=False)
    houses.to_parquet(folder / "march.parquet")
    dates = pd.date_range("2024-01-01", periods=len(houses)).strftime("%Y-%m-%d")
    houses.assign(date=dates).to_csv(folder / "sales.csv", index=False)
    wine = load_wine(as_frame=True).frame.rename(columns={"target": "kind"})
    wine.to_csv(folder / "wine.csv", index=False)
    wine.to_parquet(folder / "wine.parquet")
    np.save(folder / "digits.npy", load_digits().images[:20, None].astype(np.float32))
    for name in ("photos", "other_photos", "new_photos"):
        write_photos(folder / name)
    (folder / "books").mkdir()
    (folder / "books/one.txt").write_text((ROOT / "README.md").read_text(encoding="utf-8") * 20)
    (folder / "prompts.txt").write_text("def \nclass \n")
    write_shards(folder / "shards")
    write_tars(folder / "imagenet")
    tars = [*(folder / "imagenet").glob("*.tar")]
    for number, tar in enumerate(tars * 3):  # as many pictures as a batch of the page
        shutil.copy(tar, tar.with_name(f"more-{number}.tar"))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data, runs and sweeps that the pages name."""
    folder = tmp_path_factory.mktemp("site") / "my project"
    folder.mkdir()
    write_data(folder)
    table = "data=table data.source.path={} data.source.target={}"
    jobs = {
        "outputs/my_run": table.format("patients.csv", "ill"),
        "outputs/houses/my_run": table.format("houses.csv", "price"),
        "outputs/photos/my_run": "data=image_folder data.source.root=photos model=small_cnn",
        "outputs/digits/my_run": "model=resnet18 trainer.limit_train_batches=3",
        "outputs/gpt": "experiment=stdlib_gpt trainer.limit_train_batches=3 model.num_layers=1",
        "outputs/simclr": "experiment=digits_simclr trainer.limit_train_batches=2",
        "outputs/wine": table.format("wine.csv", "kind"),
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        for path, words in jobs.items():
            invoke(f"train {words} hydra.run.dir={path}", 0)
        diverging = "data=diabetes model=mlp optimizer=sgd optimizer.lr=100 scheduler=none"
        invoke(f"train {diverging} hydra.run.dir=outputs/diverged", 1)
        sweep = "train -m data=wine model=mlp optimizer.lr=0.01,0.1 seed=1,2 hydra.sweep.dir=outputs/my_sweep"
        invoke(sweep, 0)
    return folder


def _link_weights(source: str, copy: str) -> None:
    """Checkpoints are only read: copies of them for each command would fill a disk."""
    (os.link if source.endswith(".ckpt") else shutil.copy2)(source, copy)


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "my project"
    shutil.copytree(prepared, copy, copy_function=_link_weights)
    monkeypatch.chdir(copy)
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    return copy


@pytest.mark.long
@pytest.mark.parametrize(("page", "text"), CASES, ids=map(": ".join, CASES))
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:This DataLoader will create 8 worker processes")
def test_runs_as_it_stands(page: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = name_paths(page, text)
    if SHELL.search(named):
        monkeypatch.setenv("PATH", f"{sys.prefix}/bin:/usr/bin:/bin")
        subprocess.run(["/bin/bash", "-ec", named], check=True)
        return
    named = named.replace("assay rm", "assay rm --yes")  # there is no terminal to ask
    invoke(named.removeprefix("assay "), 0)


def test_nothing_is_left_out_that_is_not_shown() -> None:
    shown = [text for page in PAGES for text in commands(page)]
    assert [key for key in NOT_HERE if not any(re.search(key, text) for text in shown)] == []


PYTHON = ("data", "language_models", "objects", "predict", "results", "self_supervision", "train")


@pytest.mark.long
@pytest.mark.parametrize("page", PYTHON)
@pytest.mark.usefixtures("folder")
def test_python_runs_as_it_stands(page: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / f"docs/{page}.md").read_text(), re.M | re.S)
    digits, wine = load_digits(), load_wine()
    names = {
        "pictures": torch.tensor(digits.images[:40, None], dtype=torch.float32),
        "labels": digits.target[:40],
        "rows": torch.tensor(wine.data[:5], dtype=torch.float32),
    }
    assert blocks
    for block in blocks:
        exec(name_paths(page, "import assay\n" + block), names)  # noqa: S102 - the page's own lines
