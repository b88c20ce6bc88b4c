"""The one LightningDataModule: any source, split, thinned out, transformed, cut into batches."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakSet

import lightning as L
import torch

from assay.data.declared import Declared
from assay.data.limits import check_limits
from assay.data.loading.batch_order import BatchOrder, drops_last
from assay.data.loading.loaders import KeyedDataset, MemoryLoader, StreamLoader
from assay.data.loading.placement import Placement, Prepared
from assay.data.loading.preview import input_of, preview
from assay.data.samples import Samples
from assay.data.shown_samples import TOKENS, Shown, show, show_augmented
from assay.data.splitting.split_rows import Split
from assay.data.splitting.splits import Parts, check_inputs, read_parts
from assay.data.splitting.subset import Part, blocks
from assay.data.transform.normalize import Normalize, input_dtype, scaled_alike, statistics
from assay.data.transform.pretrained_scale import PretrainedScale
from assay.data.transform.transform_options import Scale, chain_of, check_tokens, given, given_scale
from assay.data.transform.transforms import Transforms
from assay.errors import DataError
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd
    from torch import Tensor

    from assay.data.samples import Encoder, Source
    from assay.data.spec import Spec
    from assay.data.trained import Trained
    from assay.task.task_name import TaskName

_STATISTICS_SAMPLES = 1024
_FEW_SAMPLES = 8


@final
class DataModule(L.LightningDataModule):
    """Cuts a source into seeded parts and the parts into batches.

    The order of samples is a pure function of (seed, epoch), and the position in it is computed from
    Lightning's loop progress, so nothing about it has to be saved. A source in memory lies on the device as
    one tensor, and a batch is one gather. What is streamed, or has random transforms sample by sample, is
    read by `num_workers` processes.

    Args:
        source: What gives the samples.
        batch_size: Training samples a batch and device.
        eval_batch_size: Validation and test samples a batch and device.
        split: How samples are divided, see `assay.data.splitting.split_rows.Split`.
        transform: Keys `train` and `eval`, lists of torchvision v2 transforms, and `normalize`: `data` (the
            training part's own statistics; those of 1,024 samples where it is streamed or transformed),
            `auto` (those that the model's pretrained weights know, else `data`), `imagenet`, null, or a
            mapping with `mean` and `std`.
        shuffle: Draw a new order of the training samples each epoch.
        drop_last: Leave out the last training batch if it is smaller; `auto`: if it has less than a twentieth
            of the samples, or a single one.
        imbalance: Thin the training classes out exponentially, down to this ratio of smallest to largest
            class.
        task: `reconstruction` or `self_supervised`, which learn from the inputs alone, in place of the
            source's own task; None for that.
        standardize_targets: Have the loss of a regression see `(target - mean) / std` of the training part;
            batches, predictions and metrics keep the target's own unit. The loss itself is in standard
            deviations then.
        num_workers: Processes that read samples and transform them one by one.
        pin_memory: Page-locked memory for batches that are moved one by one; only with a CUDA device.
        persistent_workers: Keep the processes between epochs.
        prefetch_factor: Batches each process reads ahead; null for torch's default.
        seed: Of the order of samples and of random transforms.
        pretrained_inputs: What the model's weights were trained with; None where they are random.

    Attributes:
        spec: What the data tells the rest of the config; there after `setup()`.
        encoder: What made the inputs of raw records; None where they come as numbers, and before `setup()`.
        tested: The part that `test_dataloader` gives.

    Raises:
        ConfigError: An argument is out of its range.
        DataError: An argument is of no use otherwise.
    """

    spec: Spec

    mapping_arguments: Final = {"split": Split, "spec": Declared}
    """What mappings become; `spec` stands in for a source that is not read."""

    def __init__(
        self,
        source: Source,
        batch_size: int,
        eval_batch_size: int,
        split: Mapping[str, Any],
        transform: Mapping[str, Any],
        *,
        shuffle: bool = True,
        drop_last: bool | str = "auto",
        imbalance: float | None = None,
        task: TaskName | None = None,
        standardize_targets: bool = True,
        num_workers: int = 0,
        pin_memory: bool = True,
        persistent_workers: bool = True,
        prefetch_factor: int | None = None,
        seed: int = 0,
        pretrained_inputs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.source, self.split = source, Split(**split)
        sizes = {"batch_size": batch_size, "eval_batch_size": eval_batch_size, "num_workers": num_workers}
        cut = {f"split.{one.name}": getattr(self.split, one.name) for one in fields(self.split)}
        check_limits({**sizes, **cut, "imbalance": imbalance, "prefetch_factor": prefetch_factor})
        if drop_last not in (True, False, "auto"):
            raise DataError(
                f"data.drop_last={drop_last!r}: auto, true or false was expected", hint="data.drop_last=auto"
            )
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.shuffle, self.drop_last, self.imbalance, self.seed = shuffle, drop_last, imbalance, seed
        self._transforms = {name: chain_of(transform, name) for name in ("train", "eval")}
        self._task, self._standardize_targets = task, standardize_targets
        if task is not None:
            task_of(task)
        by = given(transform, "normalize")
        known = dict(pretrained_inputs or {})
        if "tokenizer" in known:
            if (texts := getattr(source, "text_encoder", None)) is not None:
                texts.use(known["tokenizer"], known["padding"], known["source"])
            known = {}
        self._given_scale, self._pretrained = given_scale(by), PretrainedScale(known or None, by)
        self._num_workers, self._pin_memory = num_workers, pin_memory
        self._workers = {
            "num_workers": num_workers,
            "persistent_workers": persistent_workers and num_workers > 0,
            "prefetch_factor": prefetch_factor if num_workers > 0 else None,
        }
        self._parts: Parts | None = None
        self._ready: dict[tuple[str, str], Part] = {}
        self._placements: dict[tuple[Any, ...], Placement] = {}
        self._streams: WeakSet[StreamLoader] = WeakSet()  # Lightning may ask for new ones every epoch
        self._normalize = Normalize()
        self.encoder: Encoder | None = None
        self.tested = "test"

    def prepare_data(self) -> None:
        """Download; Lightning calls this on one process of a machine."""
        self.source.prepare()

    def setup(self, stage: str | None = None) -> None:
        """Read the source and divide it; the second call does nothing.

        Args:
            stage: Lightning's; every stage needs the same parts.

        Raises:
            DataError: The samples cannot be what the config says they are.
        """
        del stage
        if self._parts is not None:
            return
        # Reading may draw random numbers; what comes after, such as initial weights, must not depend on it.
        with torch.random.fork_rng(devices=[]):
            self._ask_for_columns(self.split.columns)
            declared = isinstance(self.source, Declared)
            parts = read_parts(
                self.source, self.split, self.imbalance, asked=self._task, compare=not declared
            )
            parts.check(self.batch_size if self.drop_last is True else 1)
            if getattr(parts.data["train"], "vocab_size", 0):
                check_tokens(self._transforms, self._given_scale)
            trained = next(preview(self._part(parts, "train", "train"), _FEW_SAMPLES, self.split.seed))
            part = self._part(parts, "train", "eval")
            first = next(preview(part, _FEW_SAMPLES, self.split.seed))
            self._check_alike(parts, first, trained)
            mean, std = self._scale(part, first)
        self.encoder = parts.encoder
        self._parts, self._normalize = parts, Normalize(mean, std)
        train_shape = () if trained.shape[1:] == first.shape[1:] else tuple(trained.shape[1:])
        targets = self.target_statistics() if self._standardize_targets else ((), ())
        value_range: tuple[float, ...] = ()
        if parts.task.reconstructs:
            targets, value_range = (mean, std), self._value_range(part, first)
        self.spec = parts.describe(
            first, mean, std, *targets, train_shape=train_shape, value_range=value_range
        )

    def setup_for(self, trained: Trained, subset: str = "", digest: str = "") -> None:
        """Read the source for a model that is trained; nothing is learned from the samples.

        Args:
            trained: What the model's run knows of its data.
            subset: To be tested; empty: the test part where the source has one of its own or the data is the
                run's, else all samples.
            digest: Of the run's data.

        Raises:
            DataError: The model does not take the samples, or there are none.
        """
        if hasattr(self.source, "fitted"):
            self.source.fitted = trained.encoder
        with torch.random.fork_rng(devices=[]):
            self._ask_for_columns(self.split.columns)
            try:
                parts = read_parts(self.source, self.split, self.imbalance, trained, asked=self._task)
                is_other = self._divides and not subset and parts.digest != digest
            except DataError:
                if not self.split.columns and not (self._divides and not subset):
                    raise
                self._ask_for_columns({})
                is_other = True
            if is_other:
                self._divides = False
                parts = read_parts(self.source, self.split, self.imbalance, trained, asked=self._task)
            if self.split.folds and parts.digest != digest:  # folds of other samples are of no use
                plain = replace(self.split, folds=None, fold=None, inner_folds=None, inner_fold=None)
                parts = read_parts(self.source, plain, self.imbalance, trained, asked=self._task)
            self._parts, self.encoder, self.spec = parts, parts.encoder, trained.spec
            self._normalize = Normalize(trained.spec.mean, trained.spec.std)
            own = "all" not in parts.rows or self.digest() == digest
            self.tested = subset or ("test" if own else "all")
            if not len(parts.rows[self.tested]):
                raise DataError(f"data: it has no {self.tested} part", hint="name another one: --split train")
            if isinstance(samples := parts.data[self.tested], Samples):
                check_inputs(self.tested, samples)
            part = self._part(parts, self.tested, "eval")
            trained.check(next(preview(part, _FEW_SAMPLES, self.split.seed)))

    @property
    def _divides(self) -> bool:
        """Whether the source cuts into parts what comes undivided; other samples are tested as a whole."""
        return bool(getattr(self.source, "divides", False))

    @_divides.setter
    def _divides(self, value: bool) -> None:
        if hasattr(self.source, "divides"):
            self.source.divides = value

    def _ask_for_columns(self, columns: Mapping[str, str]) -> None:
        if columns and isinstance(self.source, Declared):
            key, name = next(iter(columns.items()))
            raise DataError(
                f"{key}={name}: this data is declared (data.spec), without such a column",
                hint=f"{key}=null; where the data has it: ~data.spec, so that it is read",
            )
        asked = {**columns, **({"data.split.folds": self.split.folds} if self.split.folds else {})}
        if asked and getattr(self.source, "divides_itself", False):
            key, value = next(iter(asked.items()))
            raise DataError(
                f"{key}={value}: this source divides its texts itself, and not into samples that stand alone",
                hint=f"{key}=null fold=null; data.source.split_by says how they are divided",
            )
        if hasattr(self.source, "split_columns"):
            self.source.split_columns = columns

    def _check_alike(self, parts: Parts, first: Tensor, trained: Tensor) -> None:
        """Refuse parts, and transforms of training, whose samples are not what is evaluated."""
        others = {
            name: next(preview(self._part(parts, name, "eval"), _FEW_SAMPLES, self.split.seed))
            for name in ("val", "test")
            if len(parts.rows[name]) and parts.data[name] is not parts.data["train"]
        }
        for name, found in others.items():
            if found.shape[1:] != first.shape[1:] or not scaled_alike(found, first):
                raise DataError(
                    f"data: a sample of the {name} part has shape {tuple(found.shape[1:])} and type "
                    f"{found.dtype}, one of the training part {tuple(first.shape[1:])} and {first.dtype}",
                    hint="bring the parts to one shape and type, for example with data.transform.eval",
                )
        same_channels = trained.ndim == first.ndim and trained.shape[1] == first.shape[1]
        if not same_channels or not scaled_alike(trained, first):
            raise DataError(
                f"data.transform: after data.transform.train a sample has shape {tuple(trained.shape[1:])}, "
                f"{trained.dtype}, after data.transform.eval {tuple(first.shape[1:])} and {first.dtype}",
                hint="give both the transforms that change channels or type",
            )

    def raw(self, name: str) -> Part:
        """Samples as the source gives them, encoded, but neither transformed nor normalised.

        Args:
            name: `train`, `val` or `test`.
        """
        return self._part(self._read_parts(), name)

    def _part(self, parts: Parts, name: str, chain: str = "") -> Part:
        rows = torch.as_tensor(parts.rows[name])
        given = self._transforms[chain] if chain else Transforms()
        transforms = Transforms(given.transforms, given.keys, masks=parts.task.has_masks)
        return Part(parts.data[name], rows, keys=rows, transforms=transforms)

    def _scale(self, part: Part, first: Tensor) -> Scale:
        if (known := self._pretrained.scale(first, self._given_scale)) is not None:
            return known
        if self._given_scale is None:
            if not (first.is_floating_point() or first.dtype == torch.uint8):
                return (), ()
            return statistics(self._looked_at(part))
        mean, std = self._given_scale
        if len(mean) not in (0, 1, first.shape[1]):
            raise DataError(
                f"data.transform.normalize: {len(mean)} values for inputs of {first.shape[1]} channel(s)",
                hint="data.transform.normalize=data, or make images RGB with torchvision.transforms.v2.RGB",
            )
        return mean, std

    def _value_range(self, part: Part, first: Tensor) -> tuple[float, ...]:
        """Lowest and highest value of what is read of the training part; nothing of data that is declared."""
        if first.dtype == torch.uint8:
            return 0.0, 1.0
        if isinstance(self.source, Declared):
            return ()
        ends = ((float(block.min()), float(block.max())) for block in self._looked_at(part))
        lows, highs = zip(*ends, strict=True)
        return min(lows), max(highs)

    def _looked_at(self, part: Part) -> Iterator[Tensor]:
        """Inputs that statistics are taken of: all that lie in memory, or some that have to be made."""
        if isinstance(part.data, Samples) and not part.transforms:
            return blocks(part.data.inputs, part.rows)
        return preview(part, _STATISTICS_SAMPLES, self.split.seed, self._num_workers)

    def target_statistics(self) -> Scale:
        """Mean and deviation of each real target over the training part; empty where there is none.

        Beside real targets, classes count with 0 and 1: they stay what they are.
        """
        parts = self._parts
        if parts is None:
            return (), ()
        targets = parts.data["train"].targets
        columns = range(targets.shape[1] if targets.ndim == 2 else 1)
        real = [parts.task.standardizes(column, parts.class_names) for column in columns]
        if not any(real):
            return (), ()
        mean, std = statistics(blocks(targets, torch.as_tensor(parts.rows["train"])))
        return (
            tuple(value if is_real else 0.0 for value, is_real in zip(mean, real, strict=True)),
            tuple(value if is_real else 1.0 for value, is_real in zip(std, real, strict=True)),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What the source and the loading decided on their own, a sentence each; there after `setup()`."""
        world_size, total = self._world_size(), self.spec.num_train
        rest = total % (self.batch_size * world_size) if self._drops_last() else 0
        others = ", other ones in each epoch" if self.shuffle else ""
        left = (
            f"data.drop_last={str(self.drop_last).lower()}: {rest} of {total:,} training samples do not fill "
            f"a batch and are left out{others}; data.drop_last=false trains them too"
        )
        decided = (*self._unused_targets(), *self.split_notes, *self._pretrained.notes)
        return (*getattr(self.source, "notes", ()), *decided, *((left,) if rest else ()))

    @property
    def split_notes(self) -> tuple[str, ...]:
        """What was decided about the division, and what is in two parts of it; there after `setup()`."""
        return self._read_parts().notes

    def _unused_targets(self) -> tuple[str, ...]:
        """A sentence on targets that the data has, and that are not learnt."""
        if self._task is None or self.source.task == self._task:
            return ()
        labels = self.spec.num_classes
        use = f"its {labels} classes are only looked at" if labels else "it does not see the data's targets"
        return (f"data.task={self._task}: learnt from the inputs alone; {use}",)

    def _world_size(self) -> int:
        return self.trainer.world_size if self.trainer else 1

    def _processes(self) -> int:
        return self.trainer.num_devices if self.trainer else 1  # of this machine

    def _drops_last(self) -> bool:
        return drops_last(self.drop_last, self.spec.num_train, self.batch_size, self._world_size())

    def digest(self) -> str:
        """SHA-256 over the contents and the division into parts, for the record."""
        return self._read_parts().digest

    # -- batches ---------------------------------------------------------------------------------------------

    def train_dataloader(self) -> MemoryLoader | StreamLoader:
        """Batches of the training part, from the trainer's position on; without one, those of epoch 0.

        Raises:
            DataError: There are fewer training samples than one batch on each device.
        """
        loader = self._loader("train", self._train_position, train=True)
        if not len(loader):
            needed = self.batch_size * loader.order.world_size
            raise DataError(
                f"data.batch_size={self.batch_size}: there are only {self.spec.num_train} training samples, "
                f"fewer than one batch on each of {loader.order.world_size} devices ({needed})",
                hint="lower data.batch_size, or data.drop_last=false",
            )
        return loader

    def val_dataloader(self) -> MemoryLoader | StreamLoader | Sequence[Any]:
        """Batches of the validation part; none when there is no such part."""
        return self._loader("val", _start) if self.spec.num_val else []

    def test_dataloader(self) -> MemoryLoader | StreamLoader | Sequence[Any]:
        """Batches of the test part; none when there is no such part."""
        return self._loader(self.tested, _start) if len(self._read_parts().rows[self.tested]) else []

    def tested_names(self) -> list[str]:
        """What the tested samples are called: paths within the data's folder, or rows of the source."""
        data, rows = self._read_parts().data[self.tested], self._read_parts().rows[self.tested].tolist()
        return [data.names[row] for row in rows] if data.names else list(map(str, rows))

    def feature_names(self) -> Sequence[str]:
        """What each value of a flat input is called; nothing where nobody knows."""
        encoded: Sequence[str] = getattr(self.encoder, "feature_names", ())
        names: Sequence[str] = getattr(self._read_parts().data[self.tested], "columns", ())
        return encoded or names

    def tested_samples(self, positions: Sequence[int]) -> list[Shown]:
        """Some samples of the tested part, as a person can look at them.

        Args:
            positions: In the part.

        Raises:
            DataError: A sample cannot be read.
        """
        parts = self._read_parts()
        if (pieces := getattr(self.encoder, "pieces", None)) is not None:
            targets = parts.targets(self.tested)[torch.as_tensor(positions)]
            return [Shown(None, {TOKENS: pieces(one)}) for one in targets.tolist()]
        columns = getattr(parts.data[self.tested], "columns", ())
        part = self._ready_part(self.tested, "eval")
        return show(part, positions, self.seed, parts.raw.get(self.tested), columns)

    def samples(
        self,
        subset: str,
        positions: Sequence[int],
        raw: pd.DataFrame | None = None,
        *,
        chain: str = "",
        augment: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
    ) -> list[Shown]:
        """Some samples of a part, as a person can look at them.

        Args:
            subset: `train`, `val` or `test`.
            positions: In the part.
            raw: Its rows in a table, which are shown in place of what they became.
            chain: `train` or `eval`: after these transforms; empty: before any.
            augment: What is done to batches, after them.

        Raises:
            DataError: A sample cannot be read.
        """
        parts = self._read_parts()
        part = self._part(parts, subset, chain)
        pieces = getattr(self.encoder, "pieces", None)
        if pieces is not None and isinstance(part.data, Samples):
            chosen = part.data.inputs[part.rows[list(positions)]].tolist()
            return [Shown(None, {"text": "".join(pieces([one for one in ids if one]))}) for ids in chosen]
        columns = getattr(part.data, "columns", ())
        if augment is None or raw is not None:
            return show(part, positions, self.seed, raw, columns)

        def augmented(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            return augment(*self._prepare(inputs, targets, torch.float32))

        return show_augmented(part, positions, self.seed, augmented, self._normalize)

    def tested_inputs(self, positions: Sequence[int]) -> Tensor:
        """Some samples of the tested part, as a model gets them.

        Args:
            positions: In the part.

        Raises:
            DataError: A sample cannot be read.
        """
        part = self._ready_part(self.tested, "eval")
        inputs = self._inputs(part, positions)
        return self._prepare(inputs, part.data.targets[part.rows[list(positions)]], self._dtype())[0]

    def _inputs(self, part: Part, positions: Sequence[int]) -> Tensor:
        dataset = KeyedDataset(part.data, part.transforms, self.seed)
        keys = [(0, int(part.rows[at]), int(part.keys[at])) for at in positions]
        with torch.random.fork_rng(devices=[]):
            return torch.stack([input_of(dataset[key]) for key in keys]).to(self._device())

    def labelled(self, choose: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor] | None:
        """Training samples with their labels, as a model gets them when it is evaluated.

        Args:
            choose: From the labels of all training samples, int64 `[N]`, to the positions of those wanted.

        Returns:
            Inputs, normalised, and labels; None without labels, or of data that the model was not trained on.
        """
        part = self._ready_part("train", "eval")
        labels = part.data.targets[part.rows]
        if self.tested == "all" or labels.ndim != 1:
            return None
        positions = choose(labels)
        inputs = self._inputs(part, positions.tolist())
        return self._prepare(inputs, labels[positions].to(inputs.device), self._dtype())

    def _read_parts(self) -> Parts:
        if self._parts is None:
            raise RuntimeError("setup() comes first")
        return self._parts

    def _ready_part(self, name: str, chain: str) -> Part:
        key = name, chain
        if key not in self._ready:
            self._ready[key] = self._part(self._read_parts(), name, chain).apply_once(self._processes())
        return self._ready[key]

    def _train_position(self) -> tuple[int, int]:
        if self.trainer is None:
            return _start()
        return self.trainer.current_epoch, self.trainer.fit_loop.epoch_loop.batch_progress.current.ready

    def _loader(
        self, name: str, position: Callable[[], tuple[int, int]], *, train: bool = False
    ) -> MemoryLoader | StreamLoader:
        part, trainer = self._ready_part(name, "train" if train else "eval"), self.trainer
        order = BatchOrder(
            num_samples=len(part.rows),
            batch_size=self.batch_size if train else self.eval_batch_size,
            seed=self.seed,
            shuffle=train and self.shuffle,
            drop_last=train and self._drops_last(),
            even=train,
            rank=trainer.global_rank if trainer else 0,
            world_size=self._world_size(),
            lengths=_lengths_of(part),
        )
        one_by_one = not part.transforms.deterministic and self._num_workers > 0
        if isinstance(part.data, Samples) and not one_by_one:
            placement = self._placement(part.data, to_prepare=not part.transforms)
            return MemoryLoader(part, placement, order, position, self._device)
        pinned = self._pin_memory and self._device().type == "cuda"
        stream = StreamLoader(part, order, position, pin_memory=pinned, **self._workers)
        self._streams.add(stream)
        return stream

    def _placement(self, samples: Samples, *, to_prepare: bool) -> Placement:
        prepare = functools.partial(self._prepare, dtype=self._dtype()) if to_prepare else None
        key = id(samples), prepare and self._dtype()
        if key not in self._placements:
            self._placements[key] = Placement(samples, self._pin_memory, prepare, self._processes())
        return self._placements[key]

    def teardown(self, stage: str) -> None:
        """End the processes that load data.

        Args:
            stage: Lightning's.
        """
        del stage
        for stream in self._streams:
            stream.close()

    def on_exception(self, exception: BaseException) -> None:
        """End the processes that load data.

        Args:
            exception: Why training ended.
        """
        del exception
        self.teardown("")

    def _device(self) -> torch.device:
        return self.trainer.strategy.root_device if self.trainer else torch.device("cpu")

    def _dtype(self) -> torch.dtype:
        return input_dtype(str(self.trainer.precision)) if self.trainer else torch.float32

    def _prepare(self, inputs: Tensor, targets: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(dtype, torch.float32) if self.spec.target_mean else dtype
        return self._normalize(inputs, dtype), task_of(self.spec.task).batch_targets(targets, exact)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> tuple[Tensor, Tensor]:
        """Scale the inputs on the device and give every batch the form `(inputs, targets)`.

        Args:
            batch: A sequence or a mapping whose first two values are inputs and targets; a `Prepared` one
                needs nothing more.
            dataloader_idx: Lightning's.

        Returns:
            Inputs in the run's floating type, and targets: int64 `[B]` for classes, multi-hot `[B, L]`, or
            `[B, T]` in the run's floating type, where they are standardised at least float32.
        """
        del dataloader_idx
        if isinstance(batch, Prepared):
            return batch.inputs, batch.targets
        inputs, targets, *_ = batch.values() if isinstance(batch, Mapping) else batch
        return self._prepare(inputs, targets, self._dtype())


def _lengths_of(part: Part) -> Tensor | None:
    lengths = part.data.lengths if isinstance(part.data, Samples) else None
    return None if lengths is None else lengths[part.rows]


def _start() -> tuple[int, int]:
    return 0, 0
