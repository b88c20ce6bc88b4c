from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, final
from weakref import WeakSet

import lightning as L
import torch
from typing_extensions import override

from assay.data.core.batch_order import (
    BatchOrder,
    choose_batch_size,
    should_drop_last,
    train_position,
)
from assay.data.core.loaders import (
    MemoryLoader,
    StreamLoader,
    compute_features,
    input_statistics,
    keep_codes,
    parts_of,
    preview,
    target_statistics,
)
from assay.data.core.normalize import (
    Normalize,
    expand_categories,
    input_dtype,
    one_hot_sizes,
)
from assay.data.core.options import check_limits
from assay.data.core.placement import Placement, Prepared
from assay.data.core.source import with_defaults
from assay.data.core.spec import StaticSpec
from assay.data.core.split import Split
from assay.data.core.splits import (
    Splits,
    check_inputs,
    check_shapes,
    read_for_model,
    read_splits,
    request_split_columns,
)
from assay.data.core.subset import Subset
from assay.data.core.transforms import (
    Transforms,
    chain_of,
    check_scale,
    configured_scale,
    pretrained_scale,
    shared_resize,
)
from assay.errors import DataError
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from assay.data.core.samples import Encoder
    from assay.data.core.source import Source
    from assay.data.core.spec import FittedPreprocessing, Spec
    from assay.data.core.types import Pair, Size

_FEW_SAMPLES = 8


@final
class DataModule(L.LightningDataModule):
    """Cuts a source into seeded subsets and the subsets into batches.

    The order of samples is a pure function of (seed, epoch), and the position in it is computed from
    Lightning's loop progress, so nothing about it has to be saved. A source in memory lies on the device as
    one tensor, and a batch is one gather. What is streamed, or has random transforms sample by sample, is
    read by `num_workers` processes.

    Args:
        source: What gives the samples.
        batch_size: Training samples a batch and device; `auto`: by their number.
        global_batch_size: Training samples a batch over all devices, which then has the same samples on any
            number of them; in place of `batch_size`.
        eval_batch_size: Validation and test samples a batch and device.
        split: How samples are divided, see `assay.data.core.split.Split`.
        transform: Keys `train` and `eval`, lists of torchvision v2 transforms, and `normalize`: `data` (the
            training subset's own statistics; those of 1,024 samples where it is streamed or transformed),
            `auto` (those that the model's pretrained weights know, else `data`), `imagenet`, null, or a
            mapping with `mean` and `std`.
        shuffle: Draw a new order of the training samples each epoch.
        drop_last: Leave out the last training batch if it is smaller; `auto`: if it has less than a twentieth
            of the samples, or a single one.
        balance: What is done about rare classes: `none`; `weights` has them count more in the loss, whose
            `class_weight` or `pos_weight` becomes `balanced`; `sampler` draws each class as often as the
            others, with replacement.
        thin_classes: Thin the training classes out exponentially, down to this ratio of smallest to largest
            class.
        task: `reconstruction` or `self_supervised`, which learn from the inputs alone, in place of the
            source's own task; None for that.
        standardize_targets: Have the loss of a regression see `(target - mean) / std` of the training subset;
            batches, predictions and metrics keep the target's own unit. The loss itself is in standard
            deviations then.
        num_workers: Processes that read samples and transform them one by one.
        pin_memory: Page-locked memory for batches that are moved one by one; only with a CUDA device.
        persistent_workers: Keep the processes between epochs.
        prefetch_factor: Batches each process reads ahead; null for torch's default.
        seed: Of the order of samples and of random transforms.
        pretrained_inputs: What the model's weights were trained with; None where they are random.
        takes_codes: Whether the model takes categories of a table as codes; else it gets a column for each.

    Attributes:
        spec: What the data tells the rest of the config; available after `setup()`.
        splits: What the source is divided into; available after `setup()`.
        encoder: What made the inputs of raw records; None where they come as numbers, and before `setup()`.
        tested: The subset that `test_dataloader` gives.

    Raises:
        ConfigError: An argument is out of its range.
        DataError: An argument is of no use otherwise.
    """

    spec: Spec
    splits: Splits

    converts_batches: Final = True
    """Whether batches have the type of the trainer's precision when they have been normalised."""
    mapping_arguments: Final = {"split": Split, "spec": StaticSpec}
    """What mappings become; `spec` stands in for a source that is not read."""

    def __init__(
        self,
        source: Source,
        batch_size: int | str,
        eval_batch_size: int,
        split: Mapping[str, Any],
        transform: Mapping[str, Any],
        *,
        shuffle: bool = True,
        drop_last: bool | Literal["auto"] = "auto",
        balance: Literal["none", "weights", "sampler"] = "none",
        thin_classes: float | None = None,
        task: str | None = None,
        standardize_targets: bool = True,
        global_batch_size: int | None = None,
        num_workers: int = 0,
        pin_memory: bool = True,
        persistent_workers: bool = True,
        prefetch_factor: int | None = None,
        seed: int = 0,
        pretrained_inputs: Mapping[str, Any] | None = None,
        takes_codes: bool = False,
    ) -> None:
        super().__init__()
        self.source = with_defaults(source)
        self.split = Split(**split)
        check_limits(
            {
                "batch_size": batch_size,
                "eval_batch_size": eval_batch_size,
                "global_batch_size": global_batch_size,
                "num_workers": num_workers,
                "prefetch_factor": prefetch_factor,
                "thin_classes": thin_classes,
                **{f"split.{name}": value for name, value in vars(self.split).items()},
            }
        )
        self.balance = balance
        if global_batch_size is not None and drop_last is not True:
            raise ValueError(
                f"drop_last={str(drop_last).lower()}: expected true with a global_batch_size"
            )
        self._batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self._global_batch_size = global_batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.thin_classes = thin_classes
        self.seed = seed
        self._transforms = {name: chain_of(transform, name) for name in ("train", "eval")}
        if any(self._transforms.values()) and self.source.auto_size:
            self.source.auto_size = False  # the transforms give them a size
        self.source.resize = shared_resize(self._transforms.values())
        self._task = task
        self._standardize_targets = standardize_targets
        if task is not None:
            task_of(task)
        if pretrained_inputs and "tokenizer" in pretrained_inputs:
            if self.source.text_encoder is not None:
                options = (pretrained_inputs[key] for key in ("tokenizer", "padding", "source"))
                self.source.text_encoder.use(*options)
            pretrained_inputs = None
        self._normalize = transform.get("normalize")
        self._pretrained = pretrained_inputs
        self._given_scale = configured_scale(self._normalize)
        self._scale_notes = list[str]()
        self._takes_codes = takes_codes
        self._num_workers = num_workers
        self._pin_memory = pin_memory
        self._workers: dict[str, Any] = {
            "num_workers": num_workers,
            "persistent_workers": persistent_workers and num_workers > 0,
            "prefetch_factor": prefetch_factor if num_workers > 0 else None,
        }
        self._ready: dict[tuple[str, str], Subset] = {}
        self._featured: dict[tuple[str, str], Subset] = {}
        self._placements: dict[tuple[Any, ...], Placement] = {}
        # Lightning may request new ones every epoch
        self._streams: WeakSet[StreamLoader] = WeakSet()
        self.normalize = Normalize()
        self.encoder: Encoder | None = None
        self.tested = "test"

    def prepare_data(self) -> None:
        """Download; Lightning calls this on one process of a machine."""
        self.source.prepare()

    def setup(self, stage: str | None = None) -> None:
        """Read the source and divide it; the second call does nothing."""
        del stage
        if hasattr(self, "spec"):
            return
        # Reading may draw random numbers; later draws, such as initial weights, must not depend on it.
        with torch.random.fork_rng(devices=[]):
            request_split_columns(self.source, self.split)
            splits = self._read(self.split, compare=not isinstance(self.source, StaticSpec))
            if self.balance == "sampler" and not splits.task.by_class:
                raise DataError(
                    f"data.balance=sampler: only classes can be balanced; this is {splits.task.name}",
                    hint="data.balance=none",
                )
            self.splits = splits
            self._check_division()
            splits.check(self.batch_size if self.drop_last is True else 1)
            trained = self._first("train", "train")
            first = self._first("train", "eval")
            others = {
                name: self._first(name, "eval")
                for name, data in splits.data.items()
                if len(splits.rows[name]) and data is not splits.data["train"]
            }
            check_shapes(first, trained, others)
            cardinalities = splits.data["train"].categories
            one_hot: tuple[int, ...] = ()
            if not self._takes_codes or splits.task.learns_from_inputs:
                one_hot = cardinalities
                cardinalities = ()
            if one_hot:
                first = trained = expand_categories(first, one_hot)
            typed = check_scale(first, self._given_scale)
            scale, self._scale_notes = pretrained_scale(
                self._pretrained, self._normalize, first, typed
            )
            mean, std = input_statistics(
                self.subset("train", "eval"),
                first,
                scale or typed,
                self.split.seed,
                self._num_workers,
                one_hot=one_hot,
            )
            if cardinalities:
                mean, std = keep_codes(mean, std, first.shape[1], len(cardinalities))
        self.encoder = splits.encoder
        self.normalize = Normalize(mean, std, one_hot)
        if self._standardize_targets:
            target_mean, target_std = target_statistics(splits)
        else:
            target_mean, target_std = ((), ())
        if splits.task.reconstructs:
            target_mean = mean
            target_std = std
        self.spec = splits.describe(
            first,
            mean,
            std,
            target_mean=target_mean,
            target_std=target_std,
            image_size=self.source.image_size,
            max_value=self.source.max_value,
            mask_values=self.source.mask_values,
            cardinalities=cardinalities,
            train_shape=() if trained.shape[1:] == first.shape[1:] else tuple(trained.shape[1:]),
        )

    def _read(self, split: Split, **options: Any) -> Splits:
        return read_splits(self.source, split, self.thin_classes, asked=self._task, **options)

    def setup_for(self, trained: FittedPreprocessing, subset: str = "", digest: str = "") -> None:
        """Read the source for a trained model; nothing is learned from the samples."""
        if self.source.info.has_encoder:
            self.source.fitted = trained.encoder
        self.source.known_labels = trained.spec.class_names
        self.source.mask_values = trained.spec.mask_values
        with torch.random.fork_rng(devices=[]):
            splits = read_for_model(
                self.source,
                self.split,
                partial(self._read, trained=trained),
                digest=digest,
                whole=not subset,
            )
            self.splits = splits
            self.encoder = splits.encoder
            self.spec = trained.spec
            sizes = one_hot_sizes(asdict(trained.spec))
            self.normalize = Normalize(trained.spec.mean, trained.spec.std, sizes)
            is_own_data = "all" not in splits.rows or splits.digest == digest
            self.tested = subset or ("test" if is_own_data else "all")
            if not len(splits.rows[self.tested]):
                raise DataError(
                    f"data: the source has no {self.tested} subset",
                    hint="choose another one: --split train",
                )
            check_inputs(self.tested, splits.data[self.tested])
            trained.check(self._first(self.tested, "eval"))

    def subset(self, name: str, chain: str = "") -> Subset:
        """Samples as the source gives them, encoded, and neither transformed yet nor normalised."""
        rows = torch.as_tensor(self.splits.rows[name])
        transforms = self._transforms.get(chain, Transforms())
        transforms = Transforms(
            transforms.transforms, transforms.keys, masks=self.splits.task.has_masks
        )
        return Subset(self.splits.data[name], rows, keys=rows, transforms=transforms, name=name)

    def sample_inputs(self, count: int) -> Tensor:
        """Inputs of training samples drawn at random, transformed as in evaluation and not yet normalised."""
        return torch.cat(list(preview(self.subset("train", "eval"), count, self.split.seed)))

    def _first(self, name: str, chain: str) -> Tensor:
        return next(preview(self.subset(name, chain), _FEW_SAMPLES, self.split.seed))

    @property
    def notes(self) -> tuple[str, ...]:
        """Decisions of the source and the loading, one sentence each; available after `setup()`."""
        remainder = (
            self.spec.num_train % (self.batch_size * self._world_size()) * self._drops_last()
        )
        varies = ""
        if self.shuffle:
            varies = ", different ones in each epoch"
        left_out = (
            f"data.drop_last={str(self.drop_last).lower()}: {remainder} of {self.spec.num_train:,} training "
            f"samples do not fill a batch and are left out{varies}"
        )
        if self.splits.stream is None and self._global_batch_size is None:
            left_out += "; data.drop_last=false trains them too"
        lacking = [
            note for subset in ("val", "test") for note in self.splits.note_lacking(subset)
        ]
        texts = getattr(self.encoder, "notes", ())
        notes = (*self.source.notes, *texts, *self.splits.notes, *lacking, *self._scale_notes)
        if remainder:
            return (*notes, left_out)
        return notes

    @property
    def batch_size(self) -> int:
        """Training samples a batch and device; available after `setup()` where it was `auto`."""
        if self._global_batch_size is not None:
            return max(1, self._global_batch_size // self._world_size())
        if self._batch_size != "auto":
            return int(self._batch_size)
        return choose_batch_size(self.splits.num_train, self.splits.task)

    def _world_size(self) -> int:
        return getattr(self.trainer, "world_size", 1)

    def _processes(self) -> int:
        # of this machine
        return getattr(self.trainer, "num_devices", 1)

    def _drops_last(self) -> bool:
        return should_drop_last(
            self.drop_last, self.spec.num_train, self.batch_size, self._world_size()
        )

    def digest(self) -> str:
        """SHA-256 over the contents and the division into subsets, for the record."""
        return self.splits.digest

    def _check_division(self) -> None:
        """Refuse what a stream cannot be with."""
        is_streamed = self.splits.stream is not None
        if is_streamed and self.balance == "sampler":
            raise DataError(
                "data.balance=sampler: samples that are streamed cannot be drawn one by one",
                hint="data.balance=weights",
            )
        if is_streamed and self.drop_last is not True:
            raise DataError(
                f"data.drop_last={str(self.drop_last).lower()}: expected true with a stream",
                hint="data.drop_last=true",
            )

    # -- batches ---------------------------------------------------------------------------------------------

    def train_dataloader(self) -> MemoryLoader | StreamLoader:
        """Batches of the training subset, from the trainer's position on; without one, those of epoch 0."""
        if (stream := self.splits.stream) is None:
            loader = self._loader("train", train=True)
        else:
            order = self._order(stream.num_samples, train=True)
            size = self.spec.num_features * (1 if self.spec.input_dtype == "uint8" else 4)
            chain = self._transforms["train"]
            loader = self._stream(stream, order, transforms=chain, bytes_per_sample=size)
        if not len(loader):
            needed = self.batch_size * loader.order.world_size
            raise DataError(
                f"data.batch_size={self.batch_size}: there are only {self.spec.num_train} training samples, "
                f"fewer than one batch on each of {loader.order.world_size} devices ({needed})",
                hint="lower data.batch_size, or data.drop_last=false",
            )
        return loader

    def _stream(self, data: Any, order: BatchOrder, **options: Any) -> StreamLoader:
        pinned = self._pin_memory and self.device.type == "cuda"
        position = self._position(order)
        loader = StreamLoader(
            data, order, position, pin_memory=pinned, **options, **self._workers
        )
        self._streams.add(loader)
        return loader

    def _order(self, num_samples: int, *, train: bool, **others: Any) -> BatchOrder:
        module = getattr(self.trainer, "lightning_module", None)
        return BatchOrder(
            num_samples=num_samples,
            batch_size=self.batch_size if train else self.eval_batch_size,
            seed=self.seed,
            shuffle=train and self.shuffle,
            drop_last=train and self._drops_last(),
            even=train,
            stand_ins=not train and getattr(module, "skips_stand_ins", False),
            rank=getattr(self.trainer, "global_rank", 0),
            world_size=self._world_size(),
            **others,
        )

    def val_dataloader(self) -> MemoryLoader | StreamLoader | Sequence[Any]:
        """Batches of the validation subset; none when there is no such subset."""
        if self.spec.num_val:
            return self._loader("val")
        return []

    def test_dataloader(self) -> MemoryLoader | StreamLoader | Sequence[Any]:
        """Batches of the test subset; none when there is no such subset."""
        if len(self.splits.rows[self.tested]):
            return self._loader(self.tested)
        return []

    def ready_subset(self, name: str, chain: str) -> Subset:
        """As `subset`; what its chain does to all samples alike has been done where memory allows."""
        key = name, chain
        if key not in self._ready:
            self._ready[key] = self.subset(name, chain).apply_once(self._processes())
        return self._ready[key]

    def _find_features(self, name: str, chain: str) -> Subset:
        """What the head of a frozen network sees of images, computed once; else the images."""
        subset = self.ready_subset(name, chain)
        module: Any = getattr(self.trainer, "lightning_module", None)
        is_fixed = subset.transforms.deterministic and self._world_size() == 1
        if not (is_fixed and len(self.spec.input_shape) == 3) or not len(subset.rows):
            return subset
        if not hasattr(module, "features") or not module.has_fixed_features():
            return subset
        if (name, chain) not in self._featured:

            def compute(inputs: Tensor) -> Tensor | None:
                prepared: Tensor = self.normalize(inputs.to(self.device), self.dtype)
                return module.features(prepared)  # type: ignore[no-any-return]  # of our module

            found = compute_features(subset, compute, self.seed, self._num_workers)
            self._featured[name, chain] = found or subset
        return self._featured[name, chain]

    def _position(self, order: BatchOrder) -> Callable[[], Size]:
        return lambda: train_position(self.trainer if order.even else None)

    def _loader(self, name: str, *, train: bool = False) -> MemoryLoader | StreamLoader:
        subset = self._find_features(name, "train" if train else "eval")
        lengths = subset.data.lengths
        weights = None
        if train and self.balance == "sampler":  # one over how many samples each one's class has
            targets = subset.data.targets[subset.rows]
            weights = 1 / targets.bincount()[targets].double()
        if lengths is not None:
            lengths = lengths[subset.rows]
        order = self._order(len(subset.rows), train=train, lengths=lengths, weights=weights)
        one_by_one = not subset.transforms.deterministic and self._num_workers > 0
        if subset.data.in_memory and not one_by_one:
            if subset.transforms:
                prepare = None
            else:
                prepare = partial(self.prepare_batch, dtype=self.dtype)
            key = id(subset.data), prepare and self.dtype
            if key not in self._placements:
                placement = Placement(subset.data, self._pin_memory, prepare, self._processes())
                self._placements[key] = placement
            placement = self._placements[key]
            return MemoryLoader(
                subset, placement, order, self._position(order), lambda: self.device
            )
        return self._stream(subset, order)

    @override
    def teardown(self, stage: str) -> None:
        for stream in self._streams:
            stream.close()

    @override
    def on_exception(self, exception: BaseException) -> None:
        self.teardown("")

    @property
    def device(self) -> torch.device:
        """Where batches go."""
        if self.trainer:
            return self.trainer.strategy.root_device
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """Floating type of the inputs that the model gets."""
        return input_dtype(str(getattr(self.trainer, "precision", "")))

    def prepare_batch(self, inputs: Tensor, targets: Tensor, dtype: torch.dtype) -> Pair:
        """A batch as the module gets it."""
        exact = dtype
        if self.spec.target_mean:
            exact = torch.promote_types(dtype, torch.float32)
        if inputs.ndim != 2 or len(self.spec.input_shape) != 3:  # else features of images
            inputs = self.normalize(inputs, dtype)
        return inputs, task_of(self.spec.task).batch_targets(targets, exact)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Pair:
        """Scale the inputs on the device and give every batch the form `(inputs, targets)`."""
        del dataloader_idx
        if isinstance(batch, Prepared):
            return batch.inputs, batch.targets
        inputs, targets, *_ = parts_of(batch)
        return self.prepare_batch(inputs, targets, self.dtype)
