from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

from assay.data.normalize import target_scale
from assay.errors import AssayError, DataError
from assay.quoting import pluralize
from assay.task.language_modelling import Sampling, TextPrediction, TextPredictions, generate
from assay.task.predictions import ClassPredictions, ReconstructionPredictions
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from assay.run.preprocess import Preprocess
    from assay.task.language_modelling import Codec
    from assay.task.predictions import Kind, Predictions


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
        preprocess: The step before it; None where the run's datamodule is somebody's own and tells no `spec`:
            the model gets its input as it comes then.
        kind: What `postprocess` makes of outputs; None where nobody knows what they are, as of a
            `LightningModule` of one's own: they are returned as they come then.
        loss: Of the run, with what it has learnt: its `probabilities` are asked; None where there is none.
        names: Of classes, labels or targets.
        batch_size: Samples that the model gets at a time.
        codec: Of a language model: texts to token ids and back.

    Attributes:
        model: The model alone, which takes normalised input; `model.model` of a `LightningModule` of one's
            own is that module.
        loss: As given.
        preprocess: As given.
        kind: As given.
        task: Of the run; None where it tells no `spec`.
        names: As given.
        batch_size: As given.
        spec: Node `spec` of the run.
        threshold: Of two classes, the probability from which on it is the second one; chosen by the run.
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
        codec: Codec | None = None,
    ) -> None:
        super().__init__()
        self.model, self.preprocess = model, preprocess
        self.kind, self.names, self.batch_size = kind, names, batch_size
        self.spec = {} if preprocess is None else preprocess.spec
        self.loss, self.codec = loss, codec
        self.task = task_of(self.spec["task"]) if "task" in self.spec else None
        self._target_scale = target_scale(self.spec)
        self.threshold = 0.5
        self.notes: list[str] = []

    @torch.no_grad()
    def forward(self, raw: Any, **sampling: Any) -> Any:
        """The prediction of one sample, or the predictions of several.

        Args:
            raw: As `assay.run.preprocess.Preprocess` takes it; of a language model one text or more.
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
            raise TypeError(f"{next(iter(sampling))}: only a language model draws what it predicts")
        samples, single = self.preprocess.samples(raw)
        if far := self.preprocess.far_off(samples[: self.batch_size]):
            warnings.warn(far, stacklevel=3)
        outputs = [self.outputs(block) for block in torch.split(samples, self.batch_size)]
        if self.kind is None:
            return torch.cat(outputs)
        predictions = self.typed(torch.cat(outputs))
        if self.task is not None and self.task.has_masks:
            predictions = predictions.resized(self.preprocess.sizes(raw))
        return predictions[0] if single else predictions

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
        if self.codec is None:
            raise RuntimeError("the run has nothing that makes tokens of texts")
        length = int(self.spec["input_shape"][0])
        device = next(self.model.parameters()).device
        return generate(self.model, self.codec, prompt, length, sampling, device=device)

    def _texts(self, raw: Any, sampling: Sampling) -> TextPrediction | TextPredictions:
        several = [raw] if isinstance(raw, str) else list(raw)
        if not all(isinstance(prompt, str) for prompt in several):
            raise DataError("a language model takes a text, or several", hint='predictor("def ")')
        written = [self.text(prompt, sampling) for prompt in several]
        return written[0] if isinstance(raw, str) else TextPredictions.of(written)

    @torch.no_grad()
    def outputs(self, samples: Tensor) -> Tensor:
        """Postprocessed outputs for samples that are ready but for their normalisation, on the CPU.

        Args:
            samples: `[N, *input_shape]`, from `preprocess.samples`.
        """
        if self.preprocess is None:
            raise RuntimeError("a model without `spec` takes no samples, but what its own datamodule gives")
        return self.predicted(self.preprocess.normalized(samples)).cpu()

    def predicted(self, inputs: Tensor) -> Tensor:
        """Postprocessed outputs for normalised samples, float32 `[N, …]`.

        Of a reconstruction each row holds the error, the latent vector and the flattened reconstruction.

        Args:
            inputs: `[N, *input_shape]`, as the model takes them.

        Raises:
            AssayError: The model does not return a tensor with a row per sample.
        """
        outputs = self.model(inputs)
        if not isinstance(outputs, Tensor) or outputs.shape[:1] != inputs.shape[:1]:
            got = (
                f"shape {[*outputs.shape]}" if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
            )
            raise AssayError(
                f"the model returns {got} for {pluralize(len(inputs), 'sample')}; expected a tensor [N, …]",
                hint="let forward() return one tensor with a row per sample",
            )
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
        if self.kind is None or self.task is None:
            return outputs
        outputs = self._target_scale.restore(self._compared(outputs))
        return self.task.postprocess(outputs.float(), self.kind)

    def _compared(self, outputs: Tensor) -> Tensor:
        probabilities = None if self.task is None else self.task.probabilities(self.loss)
        return outputs if probabilities is None else probabilities(outputs)

    def typed(self, outputs: Tensor) -> Predictions:
        """Predictions of postprocessed outputs.

        Args:
            outputs: From `postprocess`.

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
            raise RuntimeError("nobody knows what the outputs of a module of one's own are")
        values = outputs.cpu().numpy()
        if self.task.reconstructs and self.kind == self.task.kind:
            return ReconstructionPredictions(values, tuple(self.spec["input_shape"]))
        predicted = self.task.typed(values, self.kind, self.names)
        if isinstance(predicted, ClassPredictions):
            return replace(predicted, threshold=self.threshold)
        return predicted
