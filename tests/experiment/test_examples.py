"""Every `assay train` that README and the docs show trains, as written, to the score in docs/scores.md."""

from __future__ import annotations

import csv
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it ships no types

from assay.run.result import RunResult
from assay.run.train import train
from assay_explain.listing import list_options

ROOT = Path(__file__).parents[2]
PAGES = (
    *("README.md", "docs/train.md", "docs/finetune.md", "docs/split.md", "docs/plugins.md"),
    *("docs/sweep.md", "docs/exact.md", "docs/self_supervision.md"),
    "examples/my_project/README.md",
)
ROW = re.compile(
    r"\| `assay (?P<command>train[^`]*)` \| (?P<metric>\S+) \| \S+ \| (?P<floor>\S+) \| (?P<when>\w+) \|"
)
LINE = re.compile(r" {4,}(?:uv run )?assay (train(?: .*?)?)(?:  +#.*)?")
WITHOUT_A_SCORE = {
    "train model=mlp --reuse",  # tests/sweep/test_reuse.py
    "train data=table data.source.path=visits.csv data.source.target=ill",  # tests/data/test_leakage.py
    "train data=table data.source.path=visits.csv data.source.target=ill data.split.dedup=true",
    "train -m data=table data.source.path=train.csv data.source.test_path=test.csv data.source.target=ill "
    "data.split.folds=5 'fold=range(5)' hydra.sweep.dir=runs/ill",  # tests/run/test_evaluate_members.py
    "train device=gpu precision=bf16 trainer.compile=true",  # needs a GPU
    "train device=gpu data.batch_size=512 trainer.micro_batch=auto",  # the same
    "train data=segmentation_folder data.source.root=scans data.source.image_size=null "
    "data/transform=random_crop data.eval_batch_size=1",  # tests/training/test_masks.py
    "train experiment=digits_segmentation",  # the experiments below, as the next four
    "train experiment=digits_autoencoder",
    "train experiment=digits_simclr",
    "train experiment=stdlib_gpt",
    "train experiment=text_topics",
    "train data=image_folder data.source.root=photos model=pretrained finetune=head",  # tests/finetune
    # Networks whose weights cannot be downloaded here: tests/training/test_callbacks.py trains small ones.
    "train data=image_folder data.source.root=photos model=timm model.name=resnet50 model.weights=DEFAULT "
    "finetune=head",
    "train data=digits model=torchvision model.name=efficientnet_b0 model.weights=efficientnet_b0.pth "
    "finetune=gradual",
    "train data=digits model=timm model.name=vit_tiny_patch16_224 model.weights=outputs/pretrain "
    "finetune=lora",
    "train data=text_table data.source.path=mails.csv data.source.text=body data.source.target=topic "
    "model=hf_text model.weights=distilbert finetune=lora",  # tests/model/test_hf_text.py
    # Tables of the reader's own: tests/data/test_splits.py divides made-up ones.
    "train data=table data.source.path=visits.csv data.source.target=ill data.split.group=patient",
    "train data=table data.source.path=visits.csv data.source.target=ill data.split.column=split",
    "train data=table data.source.path=sales.csv data.source.target=price data.split.time=date",
    # tests/data/test_image_table.py reads and trains such tables.
    "train data=image_table data.source.path=labels.csv data.source.image=file data.source.target=age",
    "train data=image_table data.source.path=labels.csv data.source.image=id data.source.root=train "
    "data.source.target=age",
    # Less is better of errors; tests/training/test_from_inputs.py trains such folders and such a table.
    "train data=image_folder data.source.root=photos data.source.image_size=[64,64] task=self_supervised "
    "trainer.max_epochs=40",
    "train data=image_folder data.source.root=photos data.source.image_size=[64,64] task=reconstruction "
    "model=conv_autoencoder",
    "train data=table data.source.path=houses.csv data.source.target=null",
    "train debug=one_batch",  # one step, to see that everything runs
}
OWN = {"model=wide", "data=diabetes_grades"}
"""Options of `OWN_PROJECT`."""
OWN_PROJECT = ROOT / "examples" / "my_project"


def shown() -> set[str]:
    """Commands in the code blocks of the pages; what a verb does elsewhere is shown by its own tests."""
    found = set()
    for page in PAGES:
        for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
            if match := LINE.fullmatch(line):
                found.add(match[1].strip())
    return {command for command in found if "--cfg" not in command}


def promised() -> dict[str, tuple[str, float, str]]:
    """Metric, floor, and when it is trained, of each command in docs/scores.md."""
    text = (ROOT / "docs" / "scores.md").read_text(encoding="utf-8")
    rows = [row.groupdict() for row in ROW.finditer(text)]
    return {row["command"]: (row["metric"], float(row["floor"]), row["when"]) for row in rows}


EXAMPLES = promised()


def test_every_command_that_is_shown_has_a_score() -> None:
    assert shown() - WITHOUT_A_SCORE == set(EXAMPLES)
    assert len(EXAMPLES) > 8, "the pages are read"
    assert {when for *_, when in EXAMPLES.values()} == {"always", "long"}


def write_houses(path: Path) -> None:
    """Prices of made-up houses."""
    draw = np.random.default_rng(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["area", "rooms", "year", "district", "garden", "price"])
        for _ in range(600):
            area, rooms = draw.uniform(30, 220), int(draw.integers(1, 8))
            year, garden = int(draw.integers(1900, 2024)), bool(draw.integers(2))
            district = draw.choice(["north", "south", "harbour"])
            price = 2200 * area + 9000 * rooms + 400 * (year - 1900) + 30_000 * garden
            price += {"north": 0, "south": 40_000, "harbour": 120_000}[district] + draw.normal(0, 20_000)
            writer.writerow([round(area, 1), rooms, year, district, garden, round(price)])


def write_photos(root: Path) -> None:
    """Digits as pictures, in a folder per class."""
    digits = load_digits()
    for number in np.flatnonzero(digits.target < 3)[:240]:
        folder = root / f"digit{digits.target[number]}"
        folder.mkdir(parents=True, exist_ok=True)
        picture = (
            Image.fromarray((digits.images[number] * 15.9).astype(np.uint8)).convert("RGB").resize((80, 80))
        )
        picture.save(folder / f"{number}.png")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What README takes to lie in a user's folder: prices of houses, and photos."""
    write_houses(tmp_path / "houses.csv")
    write_photos(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.long] if when == "long" else [])
        for command, (_, _, when) in EXAMPLES.items()
    ],
)
@pytest.mark.timeout(3600)
def test_it_trains_to_its_score(command: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metric, floor, _ = EXAMPLES[command]
    _, *words = shlex.split(command)
    if OWN & {*words}:
        monkeypatch.chdir(OWN_PROJECT)
        sweep = f"hydra.sweep.dir={project / 'outputs' / 'x' / 'sweeps' / 'y'}"
        words.append(sweep if "-m" in words else f"hydra.run.dir={project / 'run'}")
    if "-m" in words:
        score = best_of_sweep(words, metric, project)
    else:
        result = train(words)
        assert result.status == "finished"
        score = result.metrics[metric]
    print(f"{command}: {metric} {score:.4f}")
    assert score >= floor


def best_of_sweep(words: list[str], metric: str, project: Path) -> float:
    """Runs the command as it is typed, and reads the best score from its table."""
    code = "import sys; from assay.cli.app import main; sys.argv[0] = 'assay'; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "train", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (table,) = project.glob("outputs/*/sweeps/*/results.csv")
    with table.open(encoding="utf-8") as file:
        scores = [float(row[metric]) for row in csv.DictReader(file) if row.get(metric)]
    assert scores
    return max(score for score in scores if math.isfinite(score))


SCORES = {
    "digits_image": ("test/accuracy", 0.98),
    "breast_cancer_binary": ("test/accuracy", 0.94),
    "diabetes_regression": ("test/r2", 0.22),
    "digits_longtail": ("test/accuracy", 0.86),
    "digits_embedding": ("test/one_nn", 0.975),
    "wine_multitask": ("test/wine/accuracy", 0.94),
    "digits_distillation": ("test/accuracy", 0.96),
    "text_topics": ("test/accuracy", 0.79),
    "digits_segmentation": ("test/mean_iou", 0.85),
    "digits_simclr": ("test/one_nn", 0.92),
}
"""A little below the lowest of the seeds that the head comments speak of."""
DOWNLOADED = {"cifar10_cpu", "cifar10_fast"}
"""Of data that is not there: tests/experiment/test_small_jobs.py trains them small."""
MOST = {"stdlib_gpt": ("test/bits_per_byte", 2.16), "digits_autoencoder": ("test/mse", 3.1)}
"""A little above the highest of the seeds, where lower is better."""
Experiment = Callable[[str], RunResult]
"""Trains an experiment to its end; see the fixture `experiment`."""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """Each is trained once: the teacher's is one of them."""
    done: dict[str, RunResult] = {}

    def trained(name: str) -> RunResult:
        if name not in done:
            extra = []
            if name == "digits_distillation":
                extra.append(f"augment.model.run={trained('digits_image').run_dir}")
            run_dir = tmp_path_factory.mktemp(name) / "run"
            done[name] = train([f"experiment={name}", f"hydra.run.dir={run_dir}", *extra])
        return done[name]

    return trained


def test_every_experiment_has_a_score() -> None:
    assert {option.name for option in list_options("experiment")} == {*SCORES, *MOST, *DOWNLOADED}


LONG = {
    *("digits_distillation", "digits_embedding", "digits_image", "digits_longtail", "digits_segmentation"),
    *("digits_autoencoder", "digits_simclr", "stdlib_gpt", "text_topics", "wine_multitask"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in sorted(SCORES | MOST)]
)
def test_score(name: str, experiment: Experiment) -> None:
    result = experiment(name)
    metric, bound = (SCORES | MOST)[name]
    assert result.status == "finished"
    assert result.metrics[metric] <= bound if name in MOST else result.metrics[metric] >= bound


@pytest.mark.long
def test_distillation_beats_the_same_student_alone(tmp_path: Path, experiment: Experiment) -> None:
    student = ["model=mlp", "model.hidden=[16]", "optimizer.lr=0.01", "trainer.max_epochs=60"]
    alone = train([*student, f"hydra.run.dir={tmp_path / 'alone'}"])
    assert experiment("digits_distillation").metrics["test/accuracy"] > alone.metrics["test/accuracy"]
