"""Training on several devices of which each holds a shard of the model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.utils.checkpoint import checkpoint
from typing_extensions import override

from assay.checkpoint.checkpoint_file import load_verified
from assay.errors import AssayError, ConfigError
from assay.layer_depth import repeated_blocks
from assay_cluster.shard_writer import ShardWriter
from assay_cluster.shards import Part, Shards, fill, read, verify

if TYPE_CHECKING:
    from collections.abc import Sequence

    import lightning as L
    from torch.distributed.device_mesh import DeviceMesh
    from torch.optim import Optimizer


@final
class FSDP2(ModelParallelStrategy):
    """Weights, gradients and optimizer state sharded between all devices by torch's `fully_shard`.

    Each repeated block of a model and then the rest of it is gathered when it is needed and given up again. A
    model whose class has a method `configure_model(mesh)` shards itself there; so does a LightningModule of
    your own in Lightning's hook `configure_model`. What is trained, and each metric, is what one process
    would come to with all the samples of a step, up to rounding.

    Args:
        activation_checkpointing: Compute the activations of repeated blocks again in the backward pass
            rather than keep them.
        cpu_offload: Keep shards and do optimizer steps in the CPU's memory.
    """

    def __init__(self, activation_checkpointing: bool = False, cpu_offload: bool = False) -> None:
        super().__init__()
        self.activation_checkpointing = activation_checkpointing
        self.cpu_offload = cpu_offload
        self._writer: ShardWriter | None = None

    @override
    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes
        self._tensor_parallel_size = 1
        super().setup_environment()
        if self._writer is None:
            group: Any = torch.distributed.new_group(backend="gloo")
            self._writer = ShardWriter(group)

    @property
    def writer(self) -> ShardWriter:
        """Writes checkpoints; there once processes have met."""
        assert self._writer is not None  # noqa: S101 - the environment is set up
        return self._writer

    @override
    def setup(self, trainer: L.Trainer) -> None:
        """Shard the module, which every process has built whole, and build its optimizers."""
        assert self.accelerator is not None  # noqa: S101 - Lightning has set it
        self.accelerator.setup(trainer)
        module: Any = self.lightning_module
        self.model = self.precision_plugin.convert_module(module)
        if not any(isinstance(part, FSDPModule) for part in module.modules()):
            self.sharding(self.device_mesh["data_parallel"], offload=self.cpu_offload).module(
                module
            )
        self.model_to_device()
        self.barrier()
        if trainer.state.fn == TrainerFn.FITTING:
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()
        # Weights that were gathered in inference mode could not be trained.
        for loop in (
            trainer.validate_loop,
            trainer.test_loop,
            trainer.fit_loop.epoch_loop.val_loop,
        ):
            loop.inference_mode = False

    def sharding(self, mesh: DeviceMesh, *, offload: bool = False) -> Sharding:
        """How a module is sharded between the devices of a mesh."""
        mixed = isinstance(self.precision_plugin, MixedPrecision)
        return Sharding(
            mesh, torch.bfloat16 if mixed else None, self.activation_checkpointing, offload
        )

    # -- checkpoints ---------------------------------------------------------------------------------------

    @property
    @override
    def lightning_restore_optimizer(self) -> bool:
        return True

    # What the module and its optimizers give: shards, which `save_checkpoint` tells from the rest.
    lightning_module_state_dict = Strategy.lightning_module_state_dict
    optimizer_state = Strategy.optimizer_state
    load_optimizer_state_dict = Strategy.load_optimizer_state_dict

    @override
    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        """Copy a checkpoint; it is written while training goes on."""
        del storage_options
        self.writer.save(checkpoint, Path(filepath))

    @override
    def remove_checkpoint(self, filepath: Any) -> None:
        self.writer.remove(Path(filepath))

    @override
    def load_checkpoint(
        self, checkpoint_path: Any, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a checkpoint, of whose shards each process reads what it holds."""
        del weights_only
        self.writer.wait()
        path = Path(checkpoint_path)
        problem = ""
        try:
            checkpoint = load_verified(path)
            shards = Shards.of(checkpoint, path)
            if shards is None:
                raise AssayError(f"{path} is not in shards: another device has saved it")
            verify(path, shards, self.global_rank, self.world_size)
        except AssayError as error:
            problem = error.message
        if problems := [one for one in self.writer.gather(problem) if one]:
            raise AssayError(problems[0], hint="use another checkpoint of the run")
        assert shards is not None  # noqa: S101 - refused above
        module: Any = self.lightning_module
        held = _Held(module, self.optimizers, path)
        fits = module.trainer.state.fn == TrainerFn.FITTING
        weights = {"state_dict": fill(checkpoint["state_dict"], held.part, path)}
        filled: dict[str, Any] = {
            **(fill(checkpoint, held.part, path) if fits else checkpoint),
            **weights,
        }
        read(held.targets, path, shards)
        module.load_state_dict(filled["state_dict"], strict=module.strict_loading)
        return filled

    @override
    def teardown(self) -> None:
        """Wait until all is on disk."""
        if self._writer is not None:
            self._writer.wait()
        super().teardown()

    @override
    def model_to_device(self) -> None:
        """Move what is not sharded; offloaded shards stay where they are."""
        assert self.model is not None  # noqa: S101 - set up before
        if not self.cpu_offload:
            self.model.to(self.root_device)
            return
        for part in self.model.modules():
            for name, buffer in part.named_buffers(recurse=False):
                part.register_buffer(name, buffer.to(self.root_device))


@final
class _Held:
    """Where the shards of a checkpoint go to in this process."""

    def __init__(self, module: nn.Module, optimizers: Sequence[Optimizer], path: Path) -> None:
        self.targets: dict[str, torch.Tensor] = {}
        self._path = path
        self._held: dict[str, torch.Tensor] = dict(module.state_dict())
        self._parameters = [
            [parameter for group in optimizer.param_groups for parameter in group["params"]]
            for optimizer in optimizers
        ]

    def part(self, part: Part) -> torch.Tensor:
        """A tensor for a part of the checkpoint: of the module itself, or one like its parameter."""
        group, _, rest = part.name.partition(".")
        try:
            if group == "optimizer_states":
                number, _, index, _ = rest.split(".", 3)
                like: torch.Tensor = self._parameters[int(number)][int(index)]
            else:
                like = self._held[rest.rpartition("gradients.")[2]]
        except (KeyError, IndexError, ValueError) as error:
            raise AssayError(
                f"{self._path} does not fit the model: it holds {part.name}"
            ) from error
        if tuple(like.shape) != part.shape:
            raise AssayError(
                f"{self._path} does not fit the model: {part.name} is {list(part.shape)} in it, "
                f"not {list(like.shape)}"
            )
        if group == "state_dict":
            target = like
        else:
            target = torch.empty_like(like, dtype=part.dtype)
        return self.targets.setdefault(part.name, target.detach())


@final
@dataclass(frozen=True)
class Sharding:
    """How a model is sharded."""

    mesh: DeviceMesh
    dtype: torch.dtype | None = None
    """In which weights are gathered and computed with; None for their own."""
    recompute: bool = False
    offload: bool = False

    def module(self, module: nn.Module) -> None:
        """Shard each part of a LightningModule that has parameters: model and loss."""
        # which Lightning has called
        if is_overridden("configure_model", module, parent=LightningModule):
            return
        for name, _ in module.named_parameters(recurse=False):
            raise ConfigError(
                f"the parameter {name!r} of the LightningModule itself cannot be sharded",
                key="module",
                hint="put it into a torch.nn.Module, or shard the module in its configure_model",
            )
        for part in module.children():
            if next(part.parameters(), None) is not None:
                self.model(part)

    def model(self, model: nn.Module) -> None:
        """Shard repeated blocks one by one, then the rest of a model."""
        for parameter in model.parameters():
            parameter.data = parameter.data.contiguous()  # channels_last cannot be sharded
        blocks = list(repeated_blocks(model))
        for block in blocks if self.recompute else ():
            _recompute_activations(block)
        if hasattr(model, "configure_model"):
            model.configure_model(self.mesh)  # type: ignore[operator]  # a method
        else:
            offload = CPUOffloadPolicy() if self.offload else OffloadPolicy()
            # Batch norm computes with its statistics, which stay in single precision.
            norms = [
                part for part in model.modules() if _is_batch_norm(part) and part not in blocks
            ]
            for part in (*norms, *blocks, model):
                as_is = self.dtype is None or _is_batch_norm(part)
                precision = MixedPrecisionPolicy(*(() if as_is else (self.dtype, torch.float32)))
                fully_shard(part, mesh=self.mesh, mp_policy=precision, offload_policy=offload)
        saved = model.state_dict().keys()
        if buffers := [buffer for name, buffer in model.named_buffers() if name in saved]:
            model.register_forward_pre_hook(partial(_broadcast_buffers, buffers))


def _is_batch_norm(part: nn.Module) -> bool:
    return (
        getattr(part, "running_mean", None) is not None
        and next(part.parameters(), None) is not None
    )


def _recompute_activations(block: nn.Module) -> None:
    for name, part in block.named_modules():
        if _is_batch_norm(part):
            raise ConfigError(
                f"{type(part).__name__} {name} would count each batch twice",
                key="trainer.strategy.activation_checkpointing",
                hint="activation_checkpointing=false, or a model without batch norm",
            )
    block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def _broadcast_buffers(buffers: list[torch.Tensor], *_: Any) -> None:
    """Give all processes the statistics of the first one, as DistributedDataParallel does."""
    with torch.no_grad():
        for buffer in buffers:
            torch.distributed.broadcast(buffer, 0)
