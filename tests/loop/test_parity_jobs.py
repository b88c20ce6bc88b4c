"""Jobs with each callback, scheduler and optimizer that is offered come out as with Lightning's own loops."""

from __future__ import annotations

import os
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import unchanged_process
from tests.loop import recorder
from tests.loop.parity import ALLOWED, Install, Outcome, differences, end_of, install_stock, on_purpose
from tests.loop.steady_clock import CLOCK

from assay.build.assembly import assemble
from assay.compose.compose import compose, job_config
from assay.loop.fit_loop import install as install_ours

if TYPE_CHECKING:
    from collections.abc import Iterator

CONF = Path(__file__).parents[2] / "conf"
EVERY = "callbacks=[default,early_stopping,ema,model_summary]"
JOBS: dict[str, list[str]] = {
    "default": ["data=iris", "model=mlp", "callbacks=[default]"],
    "many": ["data=wine", "model=mlp", EVERY, "scheduler=plateau", "trainer.val_check_interval=0.5"],
    "reweighted": ["data=digits", "model=mlp", "callbacks=[default,drw,swa]", "augment=mixup"],
    "in short": [
        "data=breast_cancer",
        "model=mlp",
        "trainer.max_steps=9",
        "trainer.accumulate_grad_batches=2",
    ],
    "regression": ["task=regression", "data=diabetes", "model=mlp", "precision=bf16", "callbacks=[default]"],
    "closure": ["data=iris", "model=mlp", "optimizer=lbfgs", "callbacks=[default]"],
}


def options(group: str) -> list[str]:
    """What `conf/GROUP` offers."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def run_job(overrides: list[str], install: Install, folder: Path, num: int) -> Outcome:
    """Train one job with these loops, and test it.

    Args:
        overrides: What is typed.
        install: Puts the loops into a trainer.
        folder: Where; the same for runs that are compared.
        num: Of the run, so that its directory is its own.
    """
    job = ["device=cpu", "trainer.max_epochs=3", "data.batch_size=32", "trainer.log_every_n_steps=2"]
    run_dir = folder / f"run{num}"
    with chdir(folder), unchanged_process():
        typed = {one.partition("=")[0] for one in overrides}
        job = [one for one in job if one.partition("=")[0] not in typed]
        assembly = assemble(job_config(compose([*job, *overrides, "hydra.run.dir=run"])))
        trainer: Any = assembly.trainer
        trainer.accelerator.get_device_stats = lambda _: {"load": float(trainer.global_step)}
        journal = recorder.Journal("all", False, None)
        callback = recorder.recording_callback("all")
        journal.trainer, callback.journal = trainer, journal
        trainer.callbacks.insert(len(trainer.callbacks) // 2, callback)
        install(trainer)
        error, CLOCK.now = None, 1000.0
        try:
            with on_purpose(), CLOCK.told():
                trainer.fit(assembly.module, datamodule=assembly.datamodule)
                trainer.test(assembly.module, datamodule=assembly.datamodule, verbose=False)
        except Exception as caught:
            error = recorder.seen(caught)
        outcome = Outcome(
            journal.entries, {"error": error, **end_of(trainer, assembly.module, journal, folder / "run")}
        )
        if (folder / "run").exists():
            (folder / "run").rename(run_dir)
        return outcome


def told_apart(overrides: list[str], folder: Path) -> list[str]:
    stock, ours = (
        run_job(overrides, one, folder, num) for num, one in enumerate((install_stock, install_ours))
    )
    assert stock.end["error"] is None
    assert stock.end["metrics.csv"][1:]
    return differences(stock, ours, ALLOWED)


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """A seed that is told to workers is told by the environment."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.always("many")
@pytest.mark.parametrize("name", ["many", "reweighted"])
def test_jobs(name: str, tmp_path: Path) -> None:
    found = told_apart(JOBS[name], tmp_path)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", sorted({*JOBS} - {"many", "reweighted"}))
@pytest.mark.long
def test_more_jobs(name: str, tmp_path: Path) -> None:
    found = told_apart(JOBS[name], tmp_path)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("group", "option"),
    [
        (group, option)
        for group in ("callbacks", "scheduler", "optimizer", "augment")
        for option in options(group)
    ],
)
@pytest.mark.long
def test_each_option(group: str, option: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    overrides = ["data=digits", "data.batch_size=256"]
    # Two views double the batch, which is no classifier's; a teacher is a run.
    views, teacher = ((group, option) == ("augment", name) for name in ("two_views", "teacher"))
    overrides += ["task=self_supervised"] if views else ["model=small_cnn"]
    if teacher:
        overrides.append(f"augment.model.run={request.getfixturevalue('digits_run').run_dir}")
    overrides.append(f"callbacks=[{option}]" if group == "callbacks" else f"{group}={option}")
    if option in {"checkpoint", "last_checkpoint"}:
        overrides.append(f"callbacks.{option}.every_n_train_steps=2")
    found = told_apart(overrides, tmp_path)
    assert not found, "\n".join(found)
