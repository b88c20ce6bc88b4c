"""A generative adversarial network over digits: its task, its data, its training and its measure."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import lightning as L
import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it ships no types
from sklearn.neural_network import MLPClassifier  # type: ignore[import-untyped]  # it ships no types
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.image.fid import FrechetInceptionDistance
from typing_extensions import override

from assay.data.core.samples import Samples
from assay.figure import Bars, Figure
from assay.task.predictions import Predictions
from assay.task.task import Task, wrong_form

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from assay.task.evaluator import Score
    from assay.task.predictions import Kind, StoredPredictions

_SIDE: Final = 8
_SCALE: Final = 16
"""Each pixel of a PNG file is so many pixels wide."""
_PARTS: Final = ("train", "val", "test")


@final
class Generation(Task):
    """A picture from noise; the target beside the noise is a real picture, but no particular one."""

    suits = "module._target_=digit_gan.GAN"
    loss_kinds = frozenset()
    size_key = "num_targets"
    unit = ("pixel", "pixels")
    form = "grey pictures from -1 to 1, float [N, 1, H, W]"
    file_column = "picture"

    @override
    def as_targets(self, values: Tensor) -> Tensor:
        return values

    @override
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        if targets.ndim != 4 or not targets.is_floating_point():
            raise wrong_form(self, subset, targets)

    @override
    def sizes(self, targets: Tensor, class_names: Sequence[str]) -> dict[str, Any]:
        return {"num_targets": targets[0].numel()}

    @override
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int] = ()) -> Tensor:
        return torch.linspace(-1, 1, num_samples * size).view(num_samples, 1, _SIDE, _SIDE)

    @override
    def output_shape(self, spec: Mapping[str, Any], num_outputs: int) -> tuple[int, ...]:
        return (1, _SIDE, _SIDE)

    @override
    def typed(self, outputs: NDArray[Any], kind: Kind, names: tuple[str, ...]) -> Predictions:
        return Pictures(outputs)

    @override
    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        return outputs.flatten(1), targets.flatten(1)

    @override
    def picture(
        self, picture: bytes | None, targets: NDArray[Any], labels: NDArray[Any], class_names: Sequence[str]
    ) -> bytes | None:
        return png(labels)

    @override
    def scores(self, predictions: StoredPredictions) -> list[Score]:
        """None: what a run logs of its test is all there is."""
        return []

    @override
    def figures(self, predictions: StoredPredictions) -> list[Figure]:
        """How often each digit is drawn, beside how often it is written."""
        if predictions.targets is None:
            return []
        both = {"generated": predictions.outputs, "real": predictions.targets}
        bars = (Bars(name, [*map(str, range(10))], counts(pixels)) for name, pixels in both.items())
        return [Figure("digits", "Which digits are drawn", tuple(bars), "digit", "samples")]

    @override
    def error_scores(self, predictions: StoredPredictions) -> NDArray[Any]:
        return np.full(len(predictions.keys), np.nan)  # no sample is wrong by itself

    @override
    def predicted_label(self, predictions: StoredPredictions, index: int) -> str:
        digit = int(judge().predict(predictions.outputs[index : index + 1])[0])
        return f"most like a {digit}"

    @override
    def hardest_caption(self, predictions: StoredPredictions) -> str:
        return ""


@final
@dataclass(frozen=True, eq=False)
class Pictures(Predictions):
    """Generated pictures.

    Attributes:
        pixels: Float32 `[N, 1, 8, 8]` from -1 to 1.
    """

    pixels: NDArray[np.float32]
    file_suffix = ".png"
    sample_ndim = 3

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        return {"digit": judge().predict(self.pixels.reshape(len(self.pixels), -1))}

    @override
    def file_of(self, index: int) -> bytes:
        return png(self.pixels[index])

    @override
    def in_words(self) -> str:
        return f"a picture most like a {judge().predict(self.pixels.reshape(1, -1))[0]}"


@final
class NoiseAndDigits:
    """Noise, and beside it scikit-learn's 1,797 digits: 1,197 to train with, 300 to validate, 300 to test.

    The noise of evaluation is the same for each run and epoch, so that they can be compared. A training step
    draws its own.

    Args:
        latent_size: Numbers of noise that a picture is made from.
    """

    task = Generation()
    class_names = ()

    def __init__(self, latent_size: int) -> None:
        self.latent_size = latent_size

    def read(self) -> dict[str, Samples]:
        """Inputs float32 `[N, latent_size, 1, 1]`, targets float32 `[N, 1, 8, 8]` from -1 to 1."""
        draw = torch.Generator().manual_seed(0)
        found = {}
        for part, rows in digits().items():
            noise = torch.randn(len(rows), self.latent_size, 1, 1, generator=draw)
            pixels = torch.from_numpy(rows[:, :-1]).float()
            found[part] = Samples(noise, pixels.view(-1, 1, _SIDE, _SIDE))
        return found


@final
class GAN(L.LightningModule):
    """A generator of pictures and a critic that tells them from real ones (Goodfellow et al. 2014), in turns.

    The critic's gradient at real pictures is kept small (R1, Mescheder et al. 2018). All noise of a training
    step comes from torch's generator, which assay seeds for each step: a run that was killed goes on with the
    noise that it would have had.

    Args:
        latent_size: Numbers of noise that a picture is made from.
        width: Of the hidden layers.
        lr: Of both optimizers.
        betas: Of both.
        gradient_penalty: How much the critic's gradient counts.
    """

    prediction_kind = "values"

    def __init__(
        self, latent_size: int, width: int, lr: float, betas: Sequence[float], gradient_penalty: float
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self._lr, self._betas, self._gradient_penalty = lr, (betas[0], betas[1]), gradient_penalty
        size = _SIDE**2
        self.generator = nn.Sequential(
            *(nn.Flatten(), nn.Linear(latent_size, width), nn.BatchNorm1d(width), nn.ReLU()),
            *(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()),
            *(nn.Linear(width, size), nn.Tanh(), nn.Unflatten(1, (1, _SIDE, _SIDE))),
        )
        self.critic = nn.Sequential(
            *(nn.Flatten(), nn.Linear(size, width), nn.LeakyReLU(0.2)),
            *(nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)),
        )
        self.frechet, self.rarest = FrechetInceptionDistance(Features()), RarestDigit()

    @override
    def forward(self, noise: Tensor) -> Tensor:
        """Pictures `[B, 1, 8, 8]` from -1 to 1, of noise `[B, latent_size, 1, 1]`."""
        pictures: Tensor = self.generator(noise)
        return pictures

    @override
    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """A step of the critic, then one of the generator."""
        noise, real = batch
        generator_step, critic_step = self.optimizers()  # type: ignore[attr-defined]  # there are two

        fake = self(torch.randn_like(noise)).detach()
        real = real.clone().requires_grad_()
        verdict = self.critic(real)
        (slope,) = torch.autograd.grad(verdict.sum(), real, create_graph=True)
        penalty = self._gradient_penalty / 2 * slope.flatten(1).square().sum(1).mean()
        critic_loss = F.softplus(-verdict).mean() + F.softplus(self.critic(fake)).mean()
        critic_step.zero_grad()
        self.manual_backward(critic_loss + penalty)
        critic_step.step()

        generator_loss = F.softplus(-self.critic(self(torch.randn_like(noise)))).mean()
        generator_step.zero_grad()
        self.manual_backward(generator_loss)
        generator_step.step()
        losses = {"train/critic_loss": critic_loss, "train/generator_loss": generator_loss}
        self.log_dict(losses, on_step=False, on_epoch=True, batch_size=len(real))

    @override
    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Of the generator and of the critic."""
        parts = (self.generator, self.critic)
        return [torch.optim.Adam(part.parameters(), lr=self._lr, betas=self._betas) for part in parts]

    @override
    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Compare generated pictures with real ones."""
        self._compare(batch)

    @override
    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """The same; what it returns is kept."""
        return {"predictions": self._compare(batch), "targets": batch[1]}

    def _compare(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        noise, real = batch
        pictures: Tensor = self(noise)
        self.frechet.update(real, real=True)
        self.frechet.update(pictures, real=False)
        self.rarest.update(pictures)
        return pictures

    @override
    def on_validation_epoch_end(self) -> None:
        """Log how far generated pictures are from real ones."""
        self._log("val")

    @override
    def on_test_epoch_end(self) -> None:
        """As for validation."""
        self._log("test")

    def _log(self, subset: str) -> None:
        for name, metric in (("frechet", self.frechet), ("rarest", self.rarest)):
            self.log(f"{subset}/{name}", metric.compute())
            metric.reset()


@final
class Features(nn.Module):
    """What a small classifier sees in pictures, for the Fréchet distance (Heusel et al. 2017: Inception)."""

    num_features = 64

    def forward(self, pictures: Tensor) -> Tensor:
        """Float64 `[B, 64]` of pictures `[B, 1, 8, 8]`."""
        classifier = judge()
        hidden = _flat(pictures) @ classifier.coefs_[0] + classifier.intercepts_[0]
        seen: Tensor = torch.from_numpy(np.maximum(hidden, 0)).to(pictures.device)
        return seen


@final
class RarestDigit(Metric):
    """Share of the digit that is generated least often: 0.1 at best, 0 where one never is."""

    higher_is_better = True
    counts: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(10), dist_reduce_fx="sum")

    @override
    def update(self, pictures: Tensor) -> None:
        """Of generated pictures `[B, 1, 8, 8]`."""
        self.counts += torch.from_numpy(counts(_flat(pictures))).to(self.counts)

    @override
    def compute(self) -> Tensor:
        return self.counts.min() / self.counts.sum()


@functools.cache
def digits() -> dict[str, NDArray[np.float64]]:
    """Pixels from -1 to 1, `[N, 64]`, of each part; the classes come last, `[N, 65]`."""
    pixels, classes = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(np.column_stack([pixels / 8 - 1, classes]))
    return dict(zip(_PARTS, np.split(rows, [1197, 1497]), strict=True))


@functools.cache
def judge() -> MLPClassifier:
    """A classifier of 64 hidden units, fitted on the training part; right about 98 % of the test part."""
    rows = digits()["train"]
    return MLPClassifier((64,), max_iter=300, random_state=0).fit(rows[:, :-1], rows[:, -1].astype(int))


def counts(pixels: NDArray[np.float64]) -> NDArray[np.int64]:
    """How often each digit is in pictures `[N, 64]`, as the classifier sees it, int64 `[10]`."""
    return np.bincount(judge().predict(pixels), minlength=10)


def png(picture: NDArray[Any]) -> bytes:
    """A picture `[1, 8, 8]` from -1 to 1 as a PNG file."""
    grey = ((picture[0].astype(np.float64) + 1) * 127.5).round().clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(grey.repeat(_SCALE, 0).repeat(_SCALE, 1)).save(file, "PNG")
    return file.getvalue()


def _flat(pictures: Tensor) -> NDArray[np.float64]:
    return pictures.detach().flatten(1).double().cpu().numpy()
