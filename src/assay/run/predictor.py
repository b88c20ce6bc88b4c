"""The model of a finished run, read back and put behind what its data does to raw input."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final, overload

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from assay.assemble.model import build_trained
from assay.assemble.node import build
from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.config.unread_keys import OUR_DATA, OUR_MODULE
from assay.data.core.normalize import target_scale
from assay.data.core.source_info import info_of
from assay.data.core.transforms import Transforms
from assay.data.encoder_file import read_encoder
from assay.data.preprocess import Preprocess
from assay.data.table.table_encoder import TableEncoder
from assay.data.text.tokenizer import Bytes, TextEncoder, Tokenizer
from assay.errors import AssayError, DataError
from assay.quoting import pluralize
from assay.record.run_record import RunRecord
from assay.rooms import entries
from assay.run.saved_config import describe_ending, name_file_in_errors, read_config
from assay.targets.objects import provide_objects
from assay.task.language_modelling import Sampling, TextPrediction, TextPredictions, generate
from assay.task.predictions import ClassPredictions, ReconstructionPredictions, ValuePredictions
from assay.task.task_of import custom_output_kind, task_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.data.core.source_info import SourceInfo
    from assay.task.predictions import Kind, Predictions
    from assay.task.task import Task


@final
class Predictor(nn.Module):
    """What `assay.load` returns: the model behind everything that its run's data does to raw input.

    Call it with one sample or several in any form that `Preprocess` takes. The answer is typed:
    `ClassPredictions`, `LabelPredictions`, `ValuePredictions` (in the target's own unit),
    `EmbeddingPredictions` or `ReconstructionPredictions`, with arrays `[N, …]` of several samples, `[…]` of
    a single one.

    Its three steps can be had one by one: `postprocess(model(preprocess(raw)))`.

    Args:
        model: The trained model.
        preprocess: The step before it; None where the run's datamodule is custom and has no `spec`:
            the model gets its input as it comes then.
        kind: What `postprocess` makes of outputs; None where their meaning is unknown, as of a custom
            `LightningModule`: they are returned as they come then.
        loss: Of the run, with what it has learnt: its `probabilities` are asked; None where there is none.
        names: Of classes, labels or targets.
        batch_size: Samples that the model gets at a time.
        codec: Of a language model: texts to token ids and back.

    Attributes:
        model: The model alone, which takes normalised input; `model.model` of a custom
            `LightningModule` is that module.
        loss: As given.
        preprocess: As given.
        kind: As given.
        task: Of the run; None where it tells no `spec`.
        names: As given.
        batch_size: As given.
        spec: Node `spec` of the run.
        threshold: Of two classes, the probability from which on it is the second one; chosen by the run.
        about_threshold: Its `value` and `class`, how it was `chosen`, its `precision` and `recall`; empty
            where none was chosen, and it is 0.5.
        notes: What the user should know of the weights, such as that the run was interrupted.
    """

    def __init__(
        self,
        model: nn.Module,
        preprocess: Preprocess | None = None,
        *,
        kind: Kind | None = None,
        loss: nn.Module | None = None,
        names: tuple[str, ...] = (),
        batch_size: int = 512,
        codec: Any = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.preprocess = preprocess
        self.kind = kind
        self.names = names
        self.batch_size = batch_size
        if preprocess is not None:
            self.spec = preprocess.spec
        else:
            self.spec = {}
        self.loss = loss
        self.codec = codec
        self.task: Task | None = None
        if "task" in self.spec:
            self.task = task_of(self.spec["task"])
        self._target_scale = target_scale(self.spec)
        self.threshold = 0.5
        self.about_threshold: Mapping[str, Any] = {}
        self.notes: list[str] = []

    @torch.no_grad()
    def forward(self, raw: Any, **sampling: Any) -> Any:
        """The prediction of one sample, or the predictions of several.

        Args:
            raw: As `assay.data.preprocess.Preprocess` takes it; of a language model one text or more.
            sampling: `temperature`, `top_k`, `max_tokens` and `seed` of a language model, see
                `assay.task.language_modelling.Sampling`.

        Raises:
            DataError: It is not what the model was trained on, or an output is not finite.
        """
        if self.preprocess is None:
            return self.model(raw)
        if self.generates:
            return self._texts(raw, Sampling(**sampling))
        if sampling:
            raise TypeError(
                f"{next(iter(sampling))}: only a language model draws what it predicts"
            )
        samples, single = self.preprocess.samples(raw)
        if far := self.preprocess.far_off(samples[: self.batch_size]):
            warnings.warn(far, stacklevel=3)
        outputs, spread = self.outputs_and_spread(samples, self.batch_size)
        if self.kind is None:
            return outputs
        predictions = self.typed(outputs, spread)
        if self.task is not None and self.task.has_masks:
            predictions = predictions.resized(self.preprocess.sizes(raw))
        if single:
            return predictions[0]
        return predictions

    def use_threshold(self, value: float, about: Mapping[str, Any]) -> None:
        """Predict the second of two classes from another probability on.

        Args:
            value: The probability.
            about: How it was chosen, and what it comes to.
        """
        self.threshold = value
        self.about_threshold = {**about, "value": value, "class": self.names[1]}

    @property
    def generates(self) -> bool:
        """Whether a prediction is how a text goes on."""
        return self.task is not None and self.task.generates and self.codec is not None

    def text(self, prompt: str, sampling: Sampling) -> TextPrediction:
        """How a text goes on.

        Args:
            prompt: Its beginning.
            sampling: How tokens are drawn.
        """
        length = int(self.spec["input_shape"][0])
        device = next(self.model.parameters()).device
        return generate(self.model, self.codec, prompt, length, sampling, device=device)

    def _texts(self, raw: Any, sampling: Sampling) -> TextPrediction | TextPredictions:
        if isinstance(raw, str):
            several = [raw]
        else:
            several = list(raw)
        if not all(isinstance(prompt, str) for prompt in several):
            raise DataError("a language model takes a text, or several", hint='predictor("def ")')
        written = [self.text(prompt, sampling) for prompt in several]
        if isinstance(raw, str):
            return written[0]
        return TextPredictions.of(written)

    @torch.no_grad()
    def outputs(self, samples: Tensor) -> Tensor:
        """Postprocessed outputs for samples that are ready but for their normalisation, on the CPU.

        Args:
            samples: `[N, *input_shape]`, from `preprocess.samples`.
        """
        preprocess: Any = self.preprocess
        inputs = preprocess.normalized(samples)
        return self.read_outputs(inputs, self.model_outputs(inputs)).cpu()

    def outputs_and_spread(self, samples: Tensor, size: int) -> tuple[Tensor, Tensor | None]:
        """As `outputs`, so many samples at a time, and the spread of an ensemble; None of other models.

        The spread is the standard deviation of what the members say of a sample.
        """
        blocks = torch.split(samples, size)
        has_members = hasattr(self.model, "member_outputs") and self.kind is not None
        if not has_members or getattr(self.model, "members", 1) == 1:
            return torch.cat([self.outputs(block) for block in blocks]), None
        pairs = [self._outputs_of_members(block) for block in blocks]
        return torch.cat([pair[0] for pair in pairs]), torch.cat([pair[1] for pair in pairs])

    @torch.no_grad()
    def _outputs_of_members(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """The model is asked once, for its output is the mean of its members'."""
        preprocess: Any = self.preprocess
        model: Any = self.model
        inputs = preprocess.normalized(samples)
        of_members = model.member_outputs(inputs)
        predicted = self.postprocess(of_members.flatten(0, 1))
        spread = predicted.view(*of_members.shape[:2], -1).std(1, correction=0)
        return self.read_outputs(inputs, of_members.mean(1)).cpu(), spread.cpu()

    def model_outputs(self, inputs: Tensor) -> Tensor:
        """What the model returns for normalised samples, `[N, *input_shape]`.

        Raises:
            AssayError: The model does not return a tensor with a row per sample.
        """
        outputs = self.model(inputs)
        if not isinstance(outputs, Tensor) or outputs.shape[:1] != inputs.shape[:1]:
            raise AssayError(
                f"the model returns {getattr(outputs, 'shape', type(outputs).__name__)} for "
                f"{pluralize(len(inputs), 'sample')}; expected a tensor [N, …]",
                hint="return one row per sample from forward()",
            )
        return outputs

    def read_outputs(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Postprocessed outputs for normalised samples and what the model returned for them, `[N, …]`.

        Of a reconstruction each row holds the error, the latent vector and the flattened reconstruction.
        """
        predicted = self.postprocess(outputs)
        if self.task is None or not self.task.reconstructs or self.kind != self.task.kind:
            return predicted
        described = self.task.described(self.model, inputs, self._compared(outputs))
        return torch.cat([described, predicted.flatten(1)], 1)

    def postprocess(self, outputs: Tensor) -> Tensor:
        """What the run's metrics saw of outputs, float32 `[N, …]`.

        Probabilities of classes `[N, C]` (of a binary task two columns) or labels `[N, L]`, values in the
        targets' own unit `[N, T]`, embeddings `[N, D]`, or reconstructions in the inputs' own unit.
        """
        is_done = getattr(self.model, "returns_predictions", False)
        if self.kind is None or self.task is None or is_done:
            return outputs
        outputs = self._target_scale.restore(self._compared(outputs))
        return self.task.postprocess(outputs.float(), self.kind)

    def _compared(self, outputs: Tensor) -> Tensor:
        probabilities = None
        if self.task is not None:
            probabilities = self.task.probabilities(self.loss)
        if probabilities is None:
            return outputs
        return probabilities(outputs)

    def typed(self, outputs: Tensor, spread: Tensor | None = None) -> Predictions:
        """Predictions of postprocessed outputs.

        Args:
            outputs: From `postprocess`.
            spread: From `spread`, of an ensemble.

        Raises:
            DataError: One is not finite, or the user's own task fails to say what it stands for.
        """
        bad = ~outputs.flatten(1).isfinite().all(1)
        if bad.any():
            raise DataError(
                f"the model's output for sample {int(bad.nonzero()[0])} is not finite (samples count from 0)",
                hint="is there a NaN in the input?",
            )
        if self.kind is None or self.task is None:
            raise RuntimeError(
                "the meaning of a custom module's outputs is unknown; set prediction_kind"
            )
        values = outputs.cpu().numpy()
        if self.task.reconstructs and self.kind == self.task.kind:
            return ReconstructionPredictions(values, tuple(self.spec["input_shape"]))
        predicted = self.task.typed(values, self.kind, self.names)
        if isinstance(predicted, ClassPredictions):
            predicted = replace(predicted, threshold=self.threshold)
            if spread is not None:
                chosen = torch.from_numpy(predicted.indices)
                spread = spread.gather(1, chosen[:, None])[:, 0]
        if spread is not None and isinstance(predicted, ClassPredictions | ValuePredictions):
            return replace(predicted, uncertainty=spread.numpy())
        return predicted


log = logging.getLogger(__name__)


@overload
def load(
    run: str | Path,
    *,
    checkpoint: Literal["best", "last"] = ...,
    map_location: str | torch.device | None = ...,
    trusted_packages: Sequence[str] = ...,
    raw_input: Literal[True] = ...,
    model: nn.Module | None = ...,
) -> Predictor: ...


@overload
def load(
    run: str | Path,
    *,
    checkpoint: Literal["best", "last"] = ...,
    map_location: str | torch.device | None = ...,
    trusted_packages: Sequence[str] = ...,
    raw_input: bool,
    model: nn.Module | None = ...,
) -> nn.Module: ...


def load(
    run: str | Path,
    *,
    checkpoint: Literal["best", "last"] = "best",
    map_location: str | torch.device | None = None,
    trusted_packages: Sequence[str] = (),
    raw_input: bool = True,
    model: nn.Module | None = None,
) -> nn.Module:
    """A predictor: the trained model of a run, in eval mode, behind what the run's data does to raw input.

    >>> predictor = load("outputs/photos/...")  # doctest: +SKIP
    >>> predictor("cat.jpg").label  # doctest: +SKIP
    'cat'

    Reads weights only: nothing in the checkpoint is executed, and its config calls what a config may call.

    Args:
        run: Run directory; or a sweep or another folder of runs, of whose best configuration all finished
            runs, which differ in seed or fold alone, are averaged.
        checkpoint: `best` or `last`; `last` is taken where a run kept no best one.
        map_location: Where to put the weights; by default the device that `device=auto` would choose.
        trusted_packages: Packages of your own that the run's config may name, besides those of the project in
            the current directory. What the run itself trusted does not count.
        raw_input: Return an `assay.run.predictor.Predictor`, which takes what a user has, prepares it
            as the run did when it evaluated, and gives a typed prediction. Otherwise the bare model, which
            takes what the run's module got from its data, in training mode: so a config gets it
            (`model._target_=assay.load`), whose data normalises by itself.
        model: Of a run that was trained with `assay.train(model=…)`: an object built like that one. A copy of
            it gets the weights.

    Returns:
        The predictor, or the model; where the run trained a `LightningModule` of your own, that is the model.

    Raises:
        AssayError: There is no such run, its config names what is not trusted, or it holds no valid
            checkpoint.
    """
    if model is not None and "model" not in RunRecord.load(Path(run)).objects:
        raise AssayError(
            f"{run} was not trained with assay.train(model=…)", hint="leave out model="
        )
    read = read_predictor
    if raw_input and Path(run).is_dir() and not Path(run, "config.yaml").exists():
        read = next(iter(entries("ensemble")), read)
    with nullcontext() if model is None else provide_objects({"model": model}):
        predictor = read(Path(run), checkpoint, map_location, trusted_packages)
    if not raw_input:
        return predictor.model.train()
    for note in predictor.notes:
        log.warning("%s", note)
    return predictor


def read_predictor(
    run_dir: Path,
    checkpoint: str,
    map_location: str | torch.device | None = None,
    trusted_packages: Sequence[str] = (),
) -> Predictor:
    """As `load`, without its log: what the user should know is in the predictor's `notes`."""
    config = read_config(run_dir, trusted_packages)
    fastest = torch.accelerator.current_accelerator(check_available=True)
    device = torch.device(map_location or fastest or "cpu")
    path = checkpoint_path(run_dir, checkpoint)
    saved = read_weights(path)
    dtype = next(
        (value.dtype for value in saved.values() if value.is_floating_point()), torch.float32
    )
    is_own = OmegaConf.select(config, "module._target_") not in (None, OUR_MODULE)
    parts = {
        part: {
            key.removeprefix(f"{part}."): saved[key]
            for key in saved
            if key.startswith(f"{part}.")
        }
        for part in ("model", "loss")
    }
    loss: nn.Module | None = None
    with name_file_in_errors(run_dir / "config.yaml"), explain_misfit(path, run_dir):
        if is_own:
            model: nn.Module = build(config, "module")
            model.load_state_dict(saved)
        else:
            model = build_trained(config, parts["model"])
            loss = build(config, "loss")
            if loss is not None:
                loss.load_state_dict(parts["loss"])
                loss = loss.to(device, dtype)
    model = model.to(device, dtype)
    spec: Any = OmegaConf.to_container(config.get("spec") or OmegaConf.create(), resolve=True)
    predictor = Predictor(model)
    if spec:
        if is_own:
            spec |= {"target_mean": [], "target_std": []}  # it was given the targets as they are
        task = task_of(spec["task"])
        encoder = read_encoder(run_dir, must_be=task.generates or source_info(config).has_encoder)
        preprocess, names = _preprocess(config, run_dir, spec, encoder, dtype)
        if is_own:
            kind = custom_output_kind(model)
        else:
            kind = task.output_kind(loss)
        codec = None
        if isinstance(encoder, Bytes | Tokenizer):
            codec = encoder
        predictor = Predictor(
            model,
            preprocess,
            kind=kind,
            loss=loss,
            names=names,
            codec=codec,
            batch_size=int(OmegaConf.select(config, "data.eval_batch_size") or 512),
        )
    predictor.notes = describe_ending(run_dir, path)
    if checkpoint == "best":
        with suppress(AssayError):  # a run that was killed early has no record
            chosen = RunRecord.load(run_dir).threshold
            if "value" in chosen and len(predictor.names) == 2:
                about = {"chosen": "by F1 on validation", "subset": "the test", **chosen}
                predictor.use_threshold(float(chosen["value"]), about)
    return predictor.eval().to(device)


@contextmanager
def explain_misfit(path: Path, run_dir: Path) -> Iterator[None]:
    """Say of weights that do not fit which file and which config they are of."""
    try:
        yield
    except (RuntimeError, TypeError) as error:
        raise AssayError(
            f"{path} does not fit {run_dir / 'config.yaml'}: {' '.join(str(error).split()):.300}"
        ) from error


def checkpoint_path(run_dir: Path, role: str) -> Path:
    """The file that a run kept as its best or last checkpoint; the last where there never was a best one."""
    kept: dict[str, str] = {}
    with suppress(AssayError):  # of a run that was killed early
        kept = RunRecord.load(run_dir).checkpoints
    # of anybody's record
    folder = run_dir / "checkpoints"
    name = Path(kept.get(role, f"{role}.ckpt")).name
    if role == "best" and "best" not in kept and not (folder / name).is_file():
        name = "last.ckpt"
    if (folder / name).is_file():
        return folder / name
    raise AssayError(
        f"there is no checkpoint {folder / name}",
        hint="callbacks.checkpoint and callbacks.last_checkpoint save one; --checkpoint last takes that",
    )


def _preprocess(
    config: DictConfig, run_dir: Path, spec: dict[str, Any], encoder: Any, dtype: torch.dtype
) -> tuple[Preprocess, tuple[str, ...]]:
    """The step before the model, and the names of what it predicts."""
    names = tuple(str(name) for name in spec.get("class_names") or ())
    if OmegaConf.select(config, "data._target_") != OUR_DATA:
        return Preprocess(spec, dtype=dtype), names
    with name_file_in_errors(run_dir / "config.yaml"):
        chain = build(config, "data.transform.eval")
        info = source_info(config)
        source: Any = None
        if info.raw_input:
            source = build(config, "data.source")
    raw_shape = OmegaConf.select(config, "data.spec.input_shape") or ()
    if not chain and info.raw_input == "arrays":
        raw_shape = spec["input_shape"]
    table_encoder = None
    if isinstance(encoder, TableEncoder | TextEncoder):
        table_encoder = encoder
    preprocess = Preprocess(
        spec,
        source=source,
        transforms=Transforms(chain or ()),
        encoder=table_encoder,
        raw_shape=tuple(raw_shape),
        dtype=dtype,
    )
    num_targets = int(spec.get("num_targets") or 0)
    if info.raw_input == "table":
        targets = source.targets
    elif num_targets == 1:
        targets = ["value"]
    else:
        targets = []
    return preprocess, names or tuple(targets or (f"value_{at}" for at in range(num_targets)))


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Names and tensors of a checkpoint."""
    weights = (
        CheckpointFile().load_checkpoint(path, map_location=torch.device("cpu")).get("state_dict")
    )
    if not isinstance(weights, dict) or not all(
        isinstance(one, torch.Tensor) for one in weights.values()
    ):
        raise AssayError(f"{path} is not a checkpoint: it has no state_dict of names and tensors")
    return dict(weights)


def source_info(config: DictConfig) -> SourceInfo:
    """What is known of the source of a run's data."""
    return info_of(str(OmegaConf.select(config, "data.source._target_")))
