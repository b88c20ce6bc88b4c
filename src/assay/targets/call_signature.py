"""Signatures of classes and functions, and how to show them in one line."""

from __future__ import annotations

import difflib
import functools
import inspect
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from omegaconf import DictConfig, OmegaConf

from assay.targets.annotation import as_typed, example_of, resolve_annotation
from assay.targets.resolve import resolve_class

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_FOR_TYPE_CHECKERS = {"Tensor": torch.Tensor, "nn": torch.nn, "torch": torch}
"""Names that a module may import for the type checker alone."""
_WIDTH = 120
_HANDED_ON: Mapping[str, str] = {
    **dict.fromkeys(("EMAWeightAveraging", "WeightAveraging"), "torch.optim.swa_utils:AveragedModel"),
    "DDPStrategy": "torch.nn.parallel:DistributedDataParallel",
    "FSDPStrategy": "torch.distributed.fsdp:FullyShardedDataParallel",
    **dict.fromkeys(("ModelSummary", "RichModelSummary"), ""),
    "PyTorchProfiler": "torch.profiler:profile",
    "TensorBoardLogger": "torch.utils.tensorboard:SummaryWriter",
    "ThroughputMonitor": "lightning.fabric.utilities.throughput:Throughput",
    "WandbLogger": "wandb:init",
}
"""Classes of Lightning's that hand `**kwargs` on, and what takes them; some drop unknown ones."""
_ALSO: Mapping[str, tuple[str, ...]] = {
    "PyTorchProfiler": ("export_to_flame_graph", "metric"),
    "RichModelSummary": ("header_style",),
}
"""Names in `**kwargs` that these classes look for themselves."""
_GIVEN = ("log_dir", "model", "module")
"""Arguments that they give themselves."""
_NETWORKS = (
    *("AlexNet", "ConvNeXt", "DenseNet", "EfficientNet", "MNASNet", "MobileNetV2", "ResNet", "ShuffleNetV2"),
    *("SqueezeNet", "SwinTransformer", "VGG", "VisionTransformer"),
)
"""torchvision's classes that builders (`resnet18`) hand `**kwargs` on to; some drop unknown ones."""


@final
@dataclass(frozen=True)
class Call:
    """The arguments of a class or function."""

    name: str
    parameters: Mapping[str, inspect.Parameter]
    own: tuple[str, ...]
    takes_any: bool
    many: Any

    @property
    def by_position(self) -> list[str]:
        """Names of those that an unnamed value can stand for, in their order."""
        return [name for name in self.own if self.parameters[name].kind in _BY_POSITION]

    @property
    def required(self) -> list[str]:
        """Names of those without a default."""
        return [name for name in self.own if self.parameters[name].default is inspect.Parameter.empty]

    def in_short(self, about: Collection[str] = ()) -> str:
        """The signature in a line, without what is of no interest."""
        near = {match for name in about for match in difflib.get_close_matches(name, self.parameters, n=3)}
        shown = {*self.required, *near.union(about).intersection(self.parameters)}
        for name in self.own:
            if len(self._line({*shown, name})) > _WIDTH:
                break
            shown.add(name)
        return self._line(shown)

    def _line(self, shown: Collection[str]) -> str:
        parts: list[str] = []
        for name, parameter in self.parameters.items():
            text = _argument(parameter) if name in shown else "…"
            if text != "…" or parts[-1:] != ["…"]:
                parts.append(text)
        return f"{self.name}({', '.join(parts)})"


def _argument(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    default = parameter.default
    plain = default is None or isinstance(default, bool | int | float | str | tuple | list)
    return f"{parameter.name}={default!r}" if plain and len(repr(default)) < 30 else f"{parameter.name}=…"


@functools.cache
def call_of(target: Callable[..., Any]) -> Call | None:
    """What a class or function takes; None for built-ins, which do not tell."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return None
    params = list(signature.parameters.values())
    if inspect.isclass(target) and target.__init__ is torch.nn.Module.__init__:
        params = []  # its `*args, **kwargs` are there to be refused
    parameters = {item.name: _resolve_parameter(target, item) for item in params if item.kind not in _MANY}
    names = tuple(parameters)
    takes_any = any(item.kind is item.VAR_KEYWORD for item in params)
    if takes_any:
        handed_on = _forwarded_parameters(target)
        if handed_on is not None:
            takes_any = False
            parameters = {**{item.name: item for item in handed_on}, **parameters}
            parameters = {name: parameters[name] for name in (*names, *parameters)}
    many = next(
        (_resolve_parameter(target, item).annotation for item in params if item.kind is item.VAR_POSITIONAL),
        None,
    )
    if target is torch.nn.Sequential:
        many = torch.nn.Module  # its annotation stands in an overload
    return Call(str(getattr(target, "__name__", target)), parameters, names, takes_any, many)


def _forwarded_parameters(target: Any) -> list[inspect.Parameter] | None:
    """Parameters that `**kwargs` are forwarded to, if they are checked only after the object is built."""
    name, home = (str(getattr(target, one, "")) for one in ("__name__", "__module__"))
    if home.startswith("torchvision."):
        network = target
        if not inspect.isclass(target):
            made = target.__annotations__.get("return")
            network = resolve_annotation(target, "return", made, _FOR_TYPE_CHECKERS)
        return _named_parameters(network) if getattr(network, "__name__", "") in _NETWORKS else None
    if not home.startswith("lightning.") or name not in _HANDED_ON:
        return None
    try:
        parameters = _named_parameters(pkgutil.resolve_name(_HANDED_ON[name])) if _HANDED_ON[name] else []
    except ImportError:
        return None  # reported where installed packages are checked
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [one for one in parameters if one.name not in _GIVEN]
    return parameters + [
        inspect.Parameter(also, keyword, default=None, annotation=Any) for also in _ALSO.get(name, ())
    ]


def _named_parameters(target: Any) -> list[inspect.Parameter]:
    parameters = inspect.signature(target).parameters.values()
    return [_resolve_parameter(target, parameter) for parameter in parameters if parameter.kind not in _MANY]


def _resolve_parameter(target: Any, parameter: inspect.Parameter) -> inspect.Parameter:
    annotation = parameter.annotation
    if (getattr(target, "__name__", ""), parameter.name) == ("WandbLogger", "experiment"):
        annotation = type(None)  # an object of a running program
    is_known = annotation is not parameter.empty
    resolved = resolve_annotation(target, parameter.name, annotation, _FOR_TYPE_CHECKERS) if is_known else Any
    return parameter.replace(annotation=resolved)


def example_hint(config: DictConfig, key: str) -> str:
    """Another value that an argument takes, ready to type; empty where the signature tells none."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else None
    if not isinstance(node, DictConfig) or "_target_" not in node:
        return ""
    call = call_of(resolve_class(parent, node))
    parameter = call.parameters.get(name) if call is not None else None
    value = example_of(parameter.annotation, parameter.default) if parameter is not None else ""
    refused = OmegaConf.select(config, key, throw_on_resolution_failure=False)
    if OmegaConf.is_config(refused):
        refused = OmegaConf.to_container(refused)
    return f"for example {key}={value}" if value not in {"", as_typed(refused)} else ""
