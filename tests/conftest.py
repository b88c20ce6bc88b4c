"""Training in this process, watched: what every test of a whole run starts from."""

from __future__ import annotations

import csv
import gc
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

import hypothesis
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig, OmegaConf
from tests import warm_process
from tests.always import mark_the_others
from torch import Tensor, nn
from typing_extensions import override

if TYPE_CHECKING:
    import lightning as L

    from assay.run.result import RunResult

if "PYTEST_XDIST_WORKER" not in os.environ:  # whose workers have it from the first process
    _CACHE = tempfile.TemporaryDirectory(prefix="assay-cache-")
    os.environ["ASSAY_CACHE"] = _CACHE.name
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process would compile torch's Python again
sys.dont_write_bytecode = False
gc.disable()  # until the tests run: what is collected stays, and each search would look at all of it again
hypothesis.settings.load_profile("ci")  # a busy machine is not a failure, and each run tries the same
DEFAULTS = {
    "device": "cpu",
    "trainer.max_epochs": "1",
    "trainer.log_every_n_steps": "1",
    "baseline": "none",
}
ALWAYS = ("checkpoint", "batch_norm", "last_checkpoint", "lr_monitor", "non_finite", "progress_bar")
"""The callbacks that every run has unless told otherwise; without them a run is over sooner."""

LONGEST = (
    *("sweep/test_reuse.py", "sweep/test_tries.py", "sweep/test_killed_sweeps.py", "sweep/test_session.py"),
    *("run/test_evaluate.py", "sweep/worker/test_worker.py", "sweep/test_poison.py"),
    *("data/test_table_formats.py", "training/test_callbacks.py", "training/test_trainer.py"),
    *("sweep/launcher/test_local.py", "contract/test_scores.py", "run/export/test_export.py"),
    *("training/test_killed_runs.py", "training/test_killed_ranks.py", "experiment/test_small_jobs.py"),
    *("check/hostile/test_hostile.py", "sweep/test_full_disk.py", "sweep/test_code_changes.py"),
    "contract/test_pages.py",
)
"""Test files that are begun first: with one of these as the last, all other workers would wait for it."""


ON_GPU = pytest.param("gpu", marks=pytest.mark.gpu)
DEVICES = ("cpu", ON_GPU)
"""Values of `device` for a test of what holds on both."""


def pytest_configure(config: pytest.Config) -> None:
    """Hide GPUs from tests that do not ask for one, so that `device=auto` and exact bits are as elsewhere."""
    asked = re.search(r"(?<!not )\bgpu\b", str(config.option.markexpr))
    if not asked:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: many tests wait for a process or a deadline, which leaves a core to the others."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave most of a long family to the long proofs, and put the longest files first."""
    mark_the_others(items, whole=not any("::" in one for one in config.args))
    if not torch.cuda.is_available():
        without = pytest.mark.skip(reason="needs a CUDA GPU; `pytest -m gpu` runs it where there is one")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(without)
    paths = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: paths.get(item.path, len(paths)))


def pytest_collection_finish() -> None:
    """Leave the million objects that the imports have made out of every later search for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 50)  # with so much left out, a search of all the rest is due too often


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Fork a process that has all the imports before a test can start a thread."""
    gc.enable()
    if not session.config.option.collectonly:
        warm_process.start()


def pytest_unconfigure() -> None:
    """Let the libraries clean up after themselves."""
    warm_process.stop()
    gc.unfreeze()


@final
@dataclass(frozen=True)
class Pass:
    """One call of the model."""

    inputs: Tensor
    output: Tensor
    training: bool


@final
class Watch(Callback):
    """Writes down what happens in a run, and changes nothing."""

    def __init__(self, keep_weights: bool = False, keep_passes: bool = False) -> None:
        self.trainer: Any = None
        self.module: Any = None
        self.lrs: list[list[float]] = []
        """Of each parameter group, as each optimizer step used them."""
        self.grad_norms: list[float] = []
        """Of all gradients together, as each optimizer step used them."""
        self.losses: list[float] = []
        """Of each training batch."""
        self.weights: list[dict[str, Tensor]] = []
        """After each optimizer step."""
        self.passes: list[Pass] = []
        self.deterministic: bool | None = None
        self.anomaly: bool | None = None
        self.matmul_precision = ""
        self.first_weights: dict[str, Tensor] = {}
        self._keep_weights, self._keep_passes = keep_weights, keep_passes

    @override
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.trainer, self.module = trainer, pl_module

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.first_weights = weights_of(pl_module)
        for optimizer in trainer.optimizers:
            optimizer.register_step_post_hook(partial(self._step, pl_module))
        model = getattr(pl_module, "model", None)
        if self._keep_passes and isinstance(model, nn.Module):
            model.register_forward_hook(self._forward)

    def _step(self, module: L.LightningModule, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self.lrs.append([float(group["lr"]) for group in optimizer.param_groups])
        grads = [p.grad.flatten() for p in module.parameters() if p.grad is not None]
        self.grad_norms.append(float(torch.linalg.vector_norm(torch.cat(grads or [torch.zeros(1)]).double())))
        if self._keep_weights:
            self.weights.append(weights_of(module))

    def _forward(self, model: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        self.passes.append(Pass(inputs[0].detach(), output.detach(), model.training))

    @override
    def on_train_batch_start(self, trainer: L.Trainer, *_: object) -> None:
        self.deterministic = torch.are_deterministic_algorithms_enabled()
        self.anomaly = torch.is_anomaly_enabled()
        self.matmul_precision = torch.get_float32_matmul_precision()

    @override
    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *_: object
    ) -> None:
        # A module that optimizes by hand may return nothing.
        self.losses.append(
            float(outputs.get("loss", "nan")) if isinstance(outputs, Mapping) else float("nan")
        )

    def falls(self, factor: float = 0.9) -> bool:
        """Whether the mean loss of the last fifth of the batches is that much below the first fifth's."""
        size = max(1, len(self.losses) // 5)
        first, last = sum(self.losses[:size]) / size, sum(self.losses[-size:]) / size
        return last < factor * first


@final
@dataclass(frozen=True)
class Trained:
    """A run, and the objects that it was."""

    result: RunResult
    watch: Watch
    run_dir: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "run_dir", self.result.run_dir)

    @property
    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.run_dir / "record.json").read_text(encoding="utf-8"))
        return record

    @property
    def rows(self) -> list[dict[str, str]]:
        with (self.run_dir / "metrics.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def column(self, name: str) -> list[float]:
        """The values of one metric in metrics.csv, in order."""
        return [float(row[name]) for row in self.rows if row.get(name)]

    def checkpoint(self, role: str) -> dict[str, Any]:
        path = self.run_dir / "checkpoints" / f"{role}.ckpt"
        loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return loaded

    @property
    def config(self) -> DictConfig:
        """The job, resolved, as its run directory has it."""
        config = OmegaConf.load(self.run_dir / "config.yaml")
        assert isinstance(config, DictConfig)
        return config

    @property
    def trainer(self) -> Any:
        return self.watch.trainer

    @property
    def module(self) -> Any:
        return self.watch.module

    @property
    def datamodule(self) -> Any:
        return self.watch.trainer.datamodule

    @property
    def weights(self) -> dict[str, Tensor]:
        return weights_of(self.module)

    def moved(self) -> bool:
        """Whether training changed a parameter, and left all of them finite."""
        after = {name: tensor for name, tensor in self.weights.items() if name in self.watch.first_weights}
        assert all(bool(tensor.isfinite().all()) for tensor in after.values() if tensor.is_floating_point())
        return any(not torch.equal(tensor, self.watch.first_weights[name]) for name, tensor in after.items())


class Train(Protocol):
    """Runs a job with a few small defaults; see the fixture `train`."""

    def __call__(
        self,
        *overrides: str,
        callbacks: Sequence[Callback] = (),
        keep_weights: bool = False,
        keep_passes: bool = False,
        config_dir: Path | None = None,
        cwd: Path | None = None,
        raise_errors: bool = True,
    ) -> Trained: ...


def train_each(train: Train, folder: Path, repetitions: Sequence[str], *overrides: str) -> Path:
    """A folder of runs that differ in seed or fold, called 0, 1, … as in a sweep."""
    for number, repetition in enumerate(repetitions):
        train(*overrides, repetition, f"hydra.run.dir='{folder / str(number)}'")
    return folder


def without_unasked(overrides: Sequence[str]) -> list[str]:
    """Overrides that leave out the callbacks which every run has, but for those that are asked for."""
    lists = [one.partition("=")[2].strip("[]") for one in overrides if one.startswith("callbacks=")]
    asked = {*",".join(lists).split(","), *(one.split(".")[1] for one in overrides if "callbacks." in one)}
    return [f"callbacks.{name}=null" for name in ALWAYS if not {name, "default"} & asked]


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tests share the cores among themselves, and sums do not depend on how many there are."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def signals_as_in_a_terminal() -> None:
    """Started in the background or by `nohup`, tests would ignore what a run is stopped by."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def unchanged_process() -> Iterator[None]:
    """Put back what a run sets for the whole process."""
    environment = dict(os.environ)
    matmul, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        torch.set_float32_matmul_precision(matmul)
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = benchmark


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Trains one job in this process, on the CPU and without callbacks unless told otherwise."""
    import assay
    from assay.targets.trust import project_packages

    def train_watched(
        *overrides: str,
        callbacks: Sequence[Callback] = (),
        keep_weights: bool = False,
        keep_passes: bool = False,
        config_dir: Path | None = None,
        cwd: Path | None = None,
        raise_errors: bool = True,
    ) -> Trained:
        folder = cwd or tmp_path_factory.mktemp("job")
        given = {override.partition("=")[0] for override in overrides}
        defaults = {**DEFAULTS, "hydra.run.dir": str(folder / "run")}
        if trusted := project_packages(config_dir):  # a folder from elsewhere cannot say so itself
            defaults["trusted_packages"] = f"[{','.join(trusted)}]"
        every = [f"{key}={value}" for key, value in defaults.items() if key not in given] + list(overrides)
        every += without_unasked(every)
        watch = Watch(keep_weights, keep_passes)
        with unchanged_process(), chdir(folder):
            result = assay.train(
                every, config_dir=config_dir, callbacks=[*callbacks, watch], raise_errors=raise_errors
            )
        return Trained(result, watch)

    return train_watched


@pytest.fixture(scope="session")
def digits_run(train: Train) -> Trained:
    """A finished run with the default callbacks, to look at."""
    return train(
        *("data=digits", "model=mlp", "callbacks=[default]", "trainer.max_epochs=2", "optimizer.lr=0.01"),
        *("optimizer.weight_decay=0.01", "data.batch_size=64", "model.clip=null"),
    )


@pytest.fixture(autouse=True)
def _interrupts_as_before() -> Iterator[None]:
    """The command leaves Ctrl-C to the system once it is done; the next test is none of its business."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)
