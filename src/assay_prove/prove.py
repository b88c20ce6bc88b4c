"""Check everything about jobs that can be checked before the first of them runs."""

from __future__ import annotations

import copy
import json
import time
import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, final

import msgspec
import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import nn

from assay.assemble.assembly import (
    OBJECTIVE,
    OPTIMIZATION,
    build_objective,
    build_optimization,
    custom_batches,
    notes_on_hyper_parameters,
    notes_on_parts,
    open_data,
    part_nodes,
    settle,
)
from assay.assemble.model import pretrained_inputs, takes_codes
from assay.assemble.node import build, plain_node, score_directions
from assay.assemble.recipe import run_length
from assay.assemble.trainer import build_trainer, check_device, silence_lightning, trainer_nodes
from assay.assemble.trainer_options import may_end_early, world_size
from assay.check.report import Proof, Report
from assay.check.signature import check_signatures
from assay.check.values import check_data_root
from assay.config.serialize import copy_of, value_of
from assay.config.unread_keys import OUR_DATA, OUR_MODULE
from assay.data.core.normalize import input_dtype
from assay.data.core.spec import StaticSpec
from assay.errors import ConfigError, first_line
from assay.targets.objects import name_of
from assay.task.task_of import task_of
from assay.torch_internals import FakeTensorMode
from assay_prove.fit import (
    check_callbacks,
    check_checkpoint_names,
    check_fine_tuning,
    check_length,
    check_manual,
    check_model,
    check_monitors,
    check_outputs,
    check_plateau,
    check_processes,
    check_whitening,
    score_names,
    warnings_of,
)
from assay_prove.optimization import follow_lr, unfinished_schedule_warnings
from assay_prove.sharded import check_sharded, check_shares, in_shards, memory_in_shards
from assay_prove.show import format_bytes
from assay_prove.smoke_batch import SmokeResult, check_micro_batch, try_parts
from assay_prove.step import (
    FEW,
    Batch,
    TriedParts,
    as_fake,
    batch_sizes,
    check_capacity,
    model_on_meta,
    module_on_meta,
    prove_step,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import lightning as L

    from assay.data.core.spec import Spec

_FOR_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
_CURVE_SECONDS = 3.0
_GLANCE_SECONDS = 0.02
"""The longest time to follow a learning rate, where it is to be shown and where it is not."""


@final
class Prover:
    """Checks jobs, and shares work between them."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._made: dict[str, Any] = {}  # for this very job, whose run may have it
        # those of several modes do not go together
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)

    def prove(
        self, job: DictConfig, overrides: Sequence[str] = (), *, curve: bool = False
    ) -> Proof:
        """Refuse a job that cannot run, or report what it will need."""
        start = time.perf_counter()
        self._made = {}
        check_device(job.trainer)
        stated = job.data.get("_target_") == OUR_DATA and job.data.get("spec") is not None
        # which samples are copies is not stated
        stated = stated and not value_of(job, "data.split.dedup")
        # Where nothing is read, the other nodes can wait for the spec, with which they are checked anyway.
        known_before: tuple[str, ...] = ()
        if stated:
            known_before = ("data", "trainer")
        nodes = self._signatures(job, known_before)
        check_data_root(job)  # of a custom source, whose class is imported now
        with torch.random.fork_rng(devices=[]), silence_lightning(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a part has to say it says again in the run
            spec, batches, data_notes = self._spec(job, nodes["data"], stated)
            config = settle(job, spec, batches)
            if config.module._target_ != OUR_MODULE:
                results = self._prove_custom_module(config)
            else:
                results = self._prove_module(config, curve=curve)
        report = Report(
            overrides=list(overrides),
            name=str(config.name),
            spec=plain_node(config, "spec") or {},
            data_read=not stated,
            notes=[*data_notes, *results.pop("notes")],
            targets=class_names(config),
            batch_size=_batch_size(config),
            devices=world_size(config),
            may_end_early=may_end_early(config),
            seconds=time.perf_counter() - start,
            **results,
        )
        return Proof(report, **self._made)

    # -- what is known of the data

    def _spec(
        self, config: DictConfig, node: Mapping[str, Any], stated: bool
    ) -> tuple[Spec | None, Mapping[str, int | None], Sequence[str]]:
        """Spec, batches and notes."""
        ignored = ["seed"]
        if stated:
            ignored += ["source"]
        data = {key: value for key, value in node.items() if key not in ignored}

        def look() -> Any:
            if stated:
                stand_in: Any = open_declared(config)
                return stand_in.spec, {}, stand_in.splits.notes
            self._made["datamodule"] = datamodule = open_data(config)
            notes = getattr(datamodule, "notes", ())
            return getattr(datamodule, "spec", None), custom_batches(datamodule), notes

        known: tuple[Spec | None, Mapping[str, int | None], Sequence[str]]
        known = self._memoize(
            "data", [data, pretrained_inputs(config), takes_codes(config)], look
        )
        return known

    # -- the parts

    def _prove_module(self, config: DictConfig, *, curve: bool) -> dict[str, Any]:
        warned = check_length(config)
        length = run_length(config)
        data = {
            key: value for key, value in plain_node(config, "spec").items() if "steps" not in key
        }
        _check_baseline(config)
        nodes = self._signatures(config)
        tried = self._parts(config, OBJECTIVE, build_objective)
        loss = _check_loss(tried["loss"])
        trial, directions = self._memoize(
            "trial",
            [*part_nodes(config, OBJECTIVE).values(), data],
            lambda: (
                try_parts(config, loss, tried["metrics"], tried["augment"]),
                score_directions(config, tried["metrics"]),
            ),
        )
        check_monitors(config, trial.names)
        trainer, of_trainer = self._inspect_trainer(config)
        check_micro_batch(config, loss, trainer)
        scores = score_names(config, trial.names)
        check_checkpoint_names(config, scores)
        precision = trainer.precision_plugin
        last = config.trainer.get("channels_last")
        model_of = [nodes["model"], nodes.get("finetune"), str(trainer.precision), last]
        model, finetune = self._memoize(
            "model", model_of, lambda: model_on_meta(config, precision)
        )
        check_fine_tuning(config, finetune)
        doubts = warnings_of(config, finetune, model)
        check_model(config, model)
        check_whitening(trainer, model, config.spec.input_shape)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ConfigError(
                "has no trainable parameter",
                key="model",
                hint="unfreeze some, or choose another model",
            )
        check_plateau(config)
        batch = _batch(config, trial, str(trainer.precision))  # by its full name: "64" is 64-true
        proof_of = [
            *model_of,
            nodes["loss"],
            mask_rates(nodes["optimizer"]),
            nodes.get("param_groups"),
        ]
        proof_of += [str(batch), str(trainer.accelerator)]
        optimization = self._parts(config, ("metrics", *OPTIMIZATION), build_optimization)
        followed_parts = copy.deepcopy(optimization)
        fake = self._memoize("fake", model_of, lambda: as_fake(model, self._mode))
        seconds = _GLANCE_SECONDS
        if curve:
            seconds = _CURVE_SECONDS
        with self._mode:
            followed = follow_lr(config, followed_parts, fake, length, seconds)
        parts = TriedParts(config, model, loss, tried["metrics"], optimization, precision)
        sizes = batch_sizes(config)
        sizes[True] = [size * trial.num_views for size in sizes[True]]
        proof_of.append(str(sizes))
        # The last tells memory and time: an augmentation may make images smaller for some epochs only.
        for shape in dict.fromkeys((trial.inputs, batch.inputs[1:])):
            shaped = replace(batch, inputs=(batch.inputs[0], *shape))
            step, unproven = self._memoize(
                "step",
                [*proof_of, str(shape)],
                partial(prove_step, parts, shaped, sizes, self._mode),
            )
        shards: list[str] = []
        if step is not None and in_shards(config):
            whole = step.memory.weights
            memory = memory_in_shards(parts, batch, trainer, self._mode)
            step = replace(step, memory=memory)
            shards = [
                f"each of {world_size(config)} devices holds {format_bytes(step.memory.weights)} of the "
                f"{format_bytes(whole)} of weights"
            ]
        if step is not None:
            check_outputs(config, loss, step.outputs)
            warned += check_capacity(
                step.memory,
                trainer,
                batch.inputs,
                whole=config.trainer.get("micro_batch") is None,
            )
        warned += [*followed.warnings(), *unfinished_schedule_warnings(config, length)]
        rates: Sequence[float] = ()
        if curve:
            rates = followed.rates
        return {
            **_count(model),
            "notes": [*notes_on_parts(config, model, finetune), *shards],
            "step": step,
            "unproven": unproven,
            "scores": scores,
            "directions": directions,
            "lr": rates,
            "lr_note": followed.note,
            "warnings": [*of_trainer, *doubts, *warned],
        }

    def _parts(
        self, config: DictConfig, names: Sequence[str], build_parts: Callable[[DictConfig], Any]
    ) -> dict[str, Any]:
        """Copies of parts to try; the parts themselves are for the run of this very job."""
        nodes = part_nodes(config, names)

        def build_and_copy() -> dict[str, Any]:
            parts = build_parts(config)
            judged, _ = self._made.setdefault("parts", ({}, part_nodes(config)))
            judged.update(parts)
            return copy.deepcopy(parts)  # so that what an object in them may count stays as it is

        return dict(self._memoize("parts", [*names, *nodes.values()], build_and_copy))

    def _prove_custom_module(self, config: DictConfig) -> dict[str, Any]:
        warned = []
        if "spec" in config:
            warned = check_length(config)
        self._signatures(config)
        trainer, of_trainer = self._inspect_trainer(config)
        precision = trainer.precision_plugin
        check_checkpoint_names(config, None)
        module = self._memoize(
            "module", [plain_node(config, "module")], lambda: module_on_meta(config, precision)
        )
        check_manual(config, module)
        return {
            **_count(module),
            "notes": notes_on_hyper_parameters(module, self._made.get("datamodule")),
            "unproven": "a custom LightningModule defines its own steps",
            "warnings": [*of_trainer, *warned],
        }

    def _inspect_trainer(self, config: DictConfig) -> tuple[L.Trainer, list[str]]:
        """The trainer, and the warnings raised while it is built."""
        check_callbacks(config)
        check_sharded(config)
        check_shares(config)
        # The metrics say how what the callbacks follow is better.
        made_from = trainer_nodes(config)
        nodes = [*made_from, plain_node(config, "metrics")]
        # Paths in it begin with the run directory, and each job has another one.
        text = json.dumps(nodes, default=str).replace(json.dumps(str(config.run_dir))[:-1], '"')

        def look() -> tuple[L.Trainer, list[str]]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with silence_lightning():
                    built = build_trainer(config)
            self._made["trainer"] = built, made_from
            meant = [
                one.message for one in caught if not issubclass(one.category, _FOR_DEVELOPERS)
            ]
            return built, [" ".join(str(message).split()) for message in meant]

        inspected: tuple[L.Trainer, list[str]] = self._memoize("trainer", [text], look)
        check_processes(config, inspected[0])
        return inspected

    def _signatures(self, config: DictConfig, names: Sequence[str] = ()) -> dict[str, Any]:
        """Check the nodes that no job before had exactly like this; returns them resolved."""
        nodes = {str(name): plain_node(config, str(name)) for name in names or config}
        text_of = {
            name: json.dumps([name, "spec" in config, node], default=str)
            for name, node in nodes.items()
        }
        if new := [name for name, text in text_of.items() if text not in self._known]:
            check_signatures(config, new)
        self._known.update((text_of[name], True) for name in new)
        return nodes

    def _memoize(self, name: str, nodes: Sequence[Any], make: Callable[[], Any]) -> Any:
        key = json.dumps([name, *nodes], sort_keys=True, default=str)
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]


_RATES = ("lr", "weight_decay", "momentum", "dampening", "betas", "eps", "alpha", "rho")
"""Arguments of optimizers that are numbers to compute with, whatever the optimizer."""


def mask_rates(node: Any) -> Any:
    """The optimizer's node in which a rate is only nothing or something: how large it is changes no shape."""
    if not isinstance(node, dict):
        return node
    return {key: _is_zero(value) if key in _RATES else value for key, value in node.items()}


def _is_zero(value: Any) -> Any:
    if isinstance(value, list):
        return [_is_zero(item) for item in value]
    if isinstance(value, int | float):
        return value == 0
    return value


def class_names(config: DictConfig) -> dict[str, str]:
    """The class of each node that says what is trained, by its key."""
    if config.module._target_ != OUR_MODULE:
        return {"model": name_of(config.module)}
    nodes = {
        key: config.get(key) or {}
        for key in ("model", "loss", "optimizer", "scheduler", "augment")
    }
    shape = OmegaConf.select(config, "scheduler.lr_lambda")
    if isinstance(shape, DictConfig):
        nodes["scheduler"] = shape  # says more than LambdaLR
    classes = {key: name_of(node) for key, node in nodes.items() if "_target_" in node}
    if classes.get("model") in {"Timm", "Torchvision"}:
        classes["model"] = str(config.model.name)
    return classes


def _check_loss(loss: Any) -> nn.Module:
    if not isinstance(loss, nn.Module):
        raise ConfigError(
            f"expected a torch.nn.Module, got a {type(loss).__name__}",
            key="loss",
            hint="write a class, with the function in its forward",
        )
    return loss


def _check_baseline(config: DictConfig) -> None:
    """Refuse a named baseline that cannot be computed from this data; `auto` takes one that can."""
    name = config.get("baseline") or "none"
    if name in ("auto", "none"):
        return
    task = task_of(config.spec.task)
    spec = config.spec
    suitable = ["majority"]
    if task.has_real_targets:
        suitable = ["mean", "last_value"]
    if task.has_heads or task.learns_from_inputs:
        suitable = []
    elif spec.get("vocab_size"):
        suitable += ["tfidf"]
    elif not task.has_masks:
        suitable += ["linear", "gradient_boosting"]
    message = ""
    if name not in suitable:
        message = f"available: {', '.join(suitable) or 'none'}"
    elif config.data.get("_target_") == OUR_DATA and not spec.num_test:
        message = "there are no test samples"
    elif not value_of(config, "predictions.max_megabytes"):
        message = "predictions.max_megabytes=0 keeps nothing to compare with"
    if message:
        raise ConfigError(
            f"expected a baseline that suits the data, got {name}: {message}",
            key="baseline",
            hint="baseline=auto",
        )


def _batch(config: DictConfig, trial: SmokeResult, precision: str) -> Batch:
    rows = (
        max(1, min(_batch_size(config) or FEW, int(config.spec.num_train) or 1)) * trial.num_views
    )
    spec = config.spec
    dtype = input_dtype(precision, str(spec.get("input_dtype", "float32")))
    target_dtype = trial.target_dtype
    if target_dtype.is_floating_point:
        target_dtype = input_dtype(precision)
    shape = spec.get("train_shape") or spec.input_shape
    return Batch((rows, *shape), dtype, (rows, *trial.targets), target_dtype)


def _batch_size(config: DictConfig) -> int:
    """Training samples a batch; 0 where neither the data nor its config tells."""
    if config.data.get("_target_") == OUR_DATA:
        return int(config.data.batch_size)
    return int(OmegaConf.select(config, "spec.train_batch_size") or 0)


def _count(model: nn.Module) -> dict[str, int | None]:
    parameters = list(model.parameters())
    if any(isinstance(p, nn.UninitializedParameter) for p in parameters):
        return {"parameters": None, "trainable": None}
    return {
        "parameters": sum(p.numel() for p in parameters),
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
    }


def open_declared(config: DictConfig) -> L.LightningDataModule:
    """The datamodule over the data as its YAML's `spec` describes it: nothing is read."""
    config = copy_of(config)
    try:
        source = msgspec.convert(plain_node(config, "data.spec"), StaticSpec)
    except msgspec.ValidationError as error:
        raise ConfigError(first_line(error), key="data.spec") from error
    with open_dict(config):
        if OmegaConf.select(config, "data.transform.normalize") in ("auto", "data"):
            config.data.transform.normalize = None  # there are no values to take a mean of
        config.data.standardize_targets = False
    datamodule: L.LightningDataModule = build(config, "data", source=source)
    datamodule.setup("fit")
    return datamodule
