"""Each network against its paper or the layers written out; every option of conf/model trains."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it has no stubs
from sklearn.decomposition import PCA  # type: ignore[import-untyped]  # it has no stubs
from torch import nn
from torch.nn import EmbeddingBag

from assay.compose.recipe import settle_recipe
from assay.model.autoencoder import Autoencoder
from assay.model.bag_of_embeddings import BagOfEmbeddings
from assay.model.conv_autoencoder import ConvAutoencoder
from assay.model.fast_cnn import FastCNN
from assay.model.gpt import GPT
from assay.model.mlp import MLP
from assay.model.simclr import SimCLR
from assay.model.small_cnn import SmallCNN
from assay.model.table_mlp import EnsembleLinear, PeriodicEmbedding, TableMLP
from assay.model.text_transformer import TextTransformer
from assay.model.unet import UNet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@pytest.mark.parametrize("norm", [None, "batch", "layer"])
def test_equals_matrix_products_written_out(norm: Literal["batch", "layer"] | None) -> None:
    torch.manual_seed(0)
    model = MLP([2, 3], 4, hidden=[5, 7], activation="torch.nn.Tanh", norm=norm)
    inputs = torch.randn(8, 2, 3)
    *layers, last = [module for module in model.modules() if isinstance(module, nn.Linear)]
    hidden = inputs.flatten(1)
    for layer in layers:
        hidden = hidden @ layer.weight.T + layer.bias
        if norm is not None:
            dim = 0 if norm == "batch" else 1
            variance = hidden.var(dim, keepdim=True, unbiased=False)
            hidden = (hidden - hidden.mean(dim, keepdim=True)) / (variance + 1e-5).sqrt()
        hidden = torch.tanh(hidden)
    torch.testing.assert_close(model(inputs), hidden @ last.weight.T + last.bias)
    dropped = [type(module) for module in MLP([4], 2, hidden=[5, 7], dropout=0.5, norm=norm).modules()]
    assert dropped.count(nn.Dropout) == 2


def test_waves_are_the_formula_of_their_paper() -> None:
    torch.manual_seed(0)
    embedding = PeriodicEmbedding(4, 3, frequencies=5)
    inputs = torch.randn(7, 4)
    frequency, phase, weight, bias = (parameter.detach().numpy() for parameter in embedding.parameters())
    outputs = embedding(inputs).detach().numpy().reshape(7, 4, 4)
    for row in range(7):
        for column in range(4):
            number = inputs[row, column].item()
            cosines = np.cos(frequency[column] * number + phase[column])
            expected = [number, *(cosines @ weight[column] + bias[column])]
            np.testing.assert_allclose(outputs[row, column], expected, rtol=1e-5, atol=1e-6)


def test_members_share_a_weight_and_differ_in_scales() -> None:
    torch.manual_seed(0)
    layer = EnsembleLinear(5, 4, members=3, signs=True)
    assert set(layer.input_scales.flatten().tolist()) == {-1.0, 1.0}
    with torch.no_grad():
        layer.output_scales.normal_()
    inputs = torch.randn(7, 3, 5)
    outputs = layer(inputs).detach().numpy()
    weight, scales, after, bias = (parameter.detach().numpy() for parameter in layer.parameters())
    for member in range(3):
        expected = (inputs[:, member].numpy() * scales[member]) @ weight.T * after[member] + bias[member]
        np.testing.assert_allclose(outputs[:, member], expected, rtol=1e-4, atol=1e-5)


def test_an_ensemble_of_a_table_predicts_the_mean_of_its_members() -> None:
    torch.manual_seed(0)
    model = TableMLP([4], 2, [3, 5], hidden=[8], waves=2, members=3)
    inputs = torch.tensor([[0.5, -1.0, 2.0, 0.0], [0.5, -1.0, 3.0, 5.0], [0.5, -1.0, 1.0, 4.0]])
    members = model(inputs)
    assert members.shape == (3, 3, 2)
    torch.testing.assert_close(model.eval()(inputs), members.mean(1))
    unknown = [
        embedding(torch.tensor([size])) for embedding, size in zip(model.embeddings, (3, 5), strict=True)
    ]
    assert all(not embedded.any() for embedded in unknown)
    single = TableMLP([4], 2, [3, 5], hidden=[8], waves=2)
    assert single(inputs).shape == (3, 2)


def test_the_latent_vector_is_all_that_the_decoder_sees() -> None:
    model = Autoencoder([3, 4, 5], latent_size=7, hidden=[16, 8])
    inputs = torch.randn(2, 3, 4, 5)
    assert model.encode(inputs).shape == (2, 7)
    torch.testing.assert_close(model(inputs), model.decoder(model.encode(inputs)))
    widths = [layer.out_features for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
    assert widths == [16, 8, 7, 8, 16, 60]


def test_a_linear_one_can_be_a_pca() -> None:
    points = load_digits().data.astype(np.float32)
    pca = PCA(5).fit(points)
    model = Autoencoder([64], latent_size=5, hidden=[])
    encoder, decoder = (layer for layer in model.modules() if isinstance(layer, torch.nn.Linear))
    with torch.no_grad():
        components, mean = torch.tensor(pca.components_), torch.tensor(pca.mean_)
        encoder.weight.copy_(components)
        encoder.bias.copy_(-components @ mean)
        decoder.weight.copy_(components.T)
        decoder.bias.copy_(mean)
        found = model(torch.tensor(points)).numpy()
    np.testing.assert_allclose(found, pca.inverse_transform(pca.transform(points)), atol=1e-3)


@pytest.mark.parametrize(("size", "warns"), [(3, False), (4, True), (9, True)])
def test_a_latent_vector_as_wide_as_the_input_is_told(
    size: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="assay"):
        Autoencoder([4], latent_size=size)
    assert ("without learning anything" in caplog.text) is warns


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 13), (1, 1, 1), (3, 32, 32)])
@pytest.mark.parametrize("widths", [[8], [8, 4, 6]])
def test_returns_the_shape_it_was_given(shape: tuple[int, ...], widths: list[int]) -> None:
    model = ConvAutoencoder(shape, latent_size=5, widths=widths).eval()
    inputs = torch.randn(2, *shape)
    assert model(inputs).shape == inputs.shape
    assert model.encode(inputs).shape == (2, 5)
    torch.testing.assert_close(model(inputs), model.decoder(model.encode(inputs)))


def test_equals_the_layers_written_out() -> None:
    torch.manual_seed(0)
    model = SmallCNN([3, 9, 12], 5, widths=[4, 6])
    inputs = torch.randn(7, 3, 9, 12)
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    hidden = inputs
    for index, convolution in enumerate(convolutions):
        if index > 0:
            hidden = nn.functional.max_pool2d(hidden, 2)
        hidden = nn.functional.conv2d(hidden, convolution.weight, padding=1)
        mean = hidden.mean((0, 2, 3), keepdim=True)
        variance = hidden.var((0, 2, 3), keepdim=True, unbiased=False)
        hidden = ((hidden - mean) / (variance + 1e-5).sqrt()).clamp(min=0)
    expected = hidden.mean((2, 3)) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(inputs), expected, rtol=1e-4, atol=1e-5)
    assert [convolution.out_channels for convolution in convolutions] == [4, 6]


@pytest.mark.parametrize(("size", "blocks"), [(1, 1), (2, 2), (8, 4), (32, 6)])
def test_the_smallest_image_of_a_depth(size: int, blocks: int) -> None:
    widths = [2] * blocks
    assert SmallCNN([1, size, size], 3, widths=widths)(torch.randn(2, 1, size, size)).shape == (2, 3)
    with pytest.raises(ValueError, match=rf"{2 * size}x{2 * size} pixels or more"):
        SmallCNN([1, size, size], 3, widths=[*widths, 2])


@pytest.mark.parametrize("size", [(8, 8), (9, 15), (31, 4), (1, 8)])
def test_every_size(size: tuple[int, int]) -> None:
    model = UNet([2, *size], 3, [4, 8, 16])
    outputs = model(torch.randn(2, 2, *size))
    assert outputs.shape == (2, 3, *size)
    outputs.mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("widths", [[4, 8], [4, 8, 16], [3, 4, 5, 6], [2, 3, 4, 5, 6]])
@pytest.mark.parametrize("size", [(70, 45), (16, 131), (33, 33)])
def test_tiles_give_what_the_whole_image_gives(widths: list[int], size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    model = UNet([2, *size], 3, widths).double()
    inputs = torch.randn(2, 2, *size, dtype=torch.float64)
    model(inputs)  # moves the averages of the norms
    whole = model.eval()(inputs)
    model.tile = 16
    torch.testing.assert_close(model(inputs), whole, rtol=1e-10, atol=1e-12)
    training = copy.deepcopy(model).train()
    model.tile = 1024
    torch.testing.assert_close(training(inputs), model.train()(inputs), rtol=0, atol=0)


def test_tiles_take_bounded_memory() -> None:
    """The largest tensor of a layer is that of a tile, however large the image is."""
    model = UNet([1, 64, 64], 2, [4, 8]).eval()
    model.tile = 64
    seen: list[int] = []
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda _module, _inputs, outputs: seen.append(outputs[0, 0].numel()))
    with torch.no_grad():
        model(torch.randn(1, 1, 400, 700))
    assert max(seen) <= (64 + 2 * 8) ** 2


def test_skips_join_features_of_the_same_place() -> None:
    """A pixel that changes is seen most where it is: maps are not shifted or flipped against each other."""
    torch.manual_seed(0)
    model = UNet([1, 32, 32], 2, [4, 8, 16]).eval()
    plain = torch.zeros(1, 1, 32, 32)
    changed = plain.clone()
    changed[0, 0, 21, 10] = 10
    with torch.no_grad():
        moved = (model(changed) - model(plain)).abs().sum(1)[0]
    row, column = divmod(int(moved.argmax()), 32)
    assert abs(row - 21) <= 2
    assert abs(column - 10) <= 2


def test_projections_in_training_and_features_afterwards() -> None:
    encoder = nn.Linear(6, 5)
    model, inputs = SimCLR(encoder, 5, hidden=4, projection_size=2), torch.randn(3, 6)
    features = encoder(inputs)
    torch.testing.assert_close(model(inputs), model.project(features))
    assert model(inputs).shape == (3, 2)
    torch.testing.assert_close(model.eval()(inputs), features)


def test_it_is_torch_s_embedding_bag_and_a_linear_layer() -> None:
    torch.manual_seed(0)
    model = BagOfEmbeddings(50, 3, width=8).eval()
    bag = EmbeddingBag.from_pretrained(model.embedding.weight.detach(), mode="mean", padding_idx=0)
    tokens = torch.randint(1, 50, (6, 12)) * (torch.arange(12) < torch.tensor([1, 3, 5, 8, 11, 12])[:, None])
    torch.testing.assert_close(model(tokens), model.head(bag(tokens)))


@pytest.mark.parametrize(
    "make", [BagOfEmbeddings, lambda vocab, outputs: TextTransformer(vocab, outputs, 16)]
)
def test_padding_learns_nothing_and_a_text_of_nothing_is_finite(make: Any) -> None:
    model = make(50, 3)
    outputs = model(torch.tensor([[4, 5, 0, 0], [0, 0, 0, 0]]))
    outputs.square().sum().backward()
    assert outputs.isfinite().all()
    assert all(one.grad is None or one.grad.isfinite().all() for one in model.parameters())
    gradient = model.embedding.weight.grad
    assert gradient is not None
    assert not gradient[0].any()
    assert gradient[4].any()


LENGTHS = torch.tensor([1, 3, 5, 8, 11, 12])


@pytest.mark.parametrize(
    "make", [BagOfEmbeddings, lambda vocab, outputs: TextTransformer(vocab, outputs, 64)]
)
def test_outputs_do_not_depend_on_how_far_a_text_is_padded(make: Any) -> None:
    torch.manual_seed(0)
    model = make(50, 3).double().eval()
    tokens = torch.randint(1, 50, (6, 64)) * (torch.arange(64) < LENGTHS[:, None])
    wide = model(tokens)
    for width in (12, 16, 32):
        torch.testing.assert_close(model(tokens[:, :width]), wide, rtol=0, atol=1e-6)
    alone = torch.cat([model(one[None, :length]) for one, length in zip(tokens, LENGTHS, strict=True)])
    torch.testing.assert_close(alone, wide, rtol=0, atol=1e-6)


def test_attention_is_torch_s_own_encoder() -> None:
    """The same weights in `nn.TransformerEncoderLayer`, with its mask of padding."""
    torch.manual_seed(0)
    model = TextTransformer(50, 3, 16, width=8, depth=2, num_heads=2).double().eval()
    tokens = torch.randint(1, 50, (6, 12)) * (torch.arange(12) < LENGTHS[:, None])
    values = model.embedding(tokens) + model.position(torch.arange(12))
    for layer in model.layers:
        reference = torch.nn.TransformerEncoderLayer(
            8, 2, 32, activation="gelu", batch_first=True, norm_first=True, dtype=torch.float64
        ).eval()
        names = {
            "self_attn.in_proj_": "query_key_value.",
            "self_attn.out_proj.": "attention_project.",
            "linear1.": "widen.",
            "linear2.": "mlp_project.",
            "norm1.": "attention_norm.",
            "norm2.": "mlp_norm.",
        }
        state = layer.state_dict()
        reference.load_state_dict(
            {
                f"{theirs}{kind}": state[f"{ours}{kind}"]
                for theirs, ours in names.items()
                for kind in ("weight", "bias")
            }
        )
        values = reference(values, src_key_padding_mask=tokens == 0)
        if values.shape[1] < 12:  # torch's fast path leaves padding out
            values = torch.nn.functional.pad(values, (0, 0, 0, 12 - values.shape[1]))
    there = (tokens != 0)[:, :, None]
    mean = (model.norm(values) * there).sum(1) / there.sum(1)
    torch.testing.assert_close(model(tokens), model.head(mean))


SIZES = {"num_layers": 3, "num_heads": 4, "embedding_size": 32}


def made(**changes: Any) -> GPT:
    torch.manual_seed(0)
    return GPT(**{"vocab_size": 11, "context_length": 7, **SIZES, **changes})


def test_it_says_what_the_gpt_2_of_transformers_says() -> None:
    transformers = pytest.importorskip("transformers")
    model = made().eval()
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=11, n_positions=7, n_embd=32, n_layer=3, n_head=4)
    ).eval()
    weights: dict[str, Any] = {
        "transformer.wte": model.tokens,
        "transformer.wpe": model.positions,
        "transformer.ln_f": model.norm,
    }
    block: Any
    for number, block in enumerate(model.blocks):
        at = f"transformer.h.{number}"
        weights |= {
            f"{at}.ln_1": block.attention_norm,
            f"{at}.attn.c_attn": block.query_key_value,
            f"{at}.attn.c_proj": block.attention_project,
            f"{at}.ln_2": block.mlp_norm,
            f"{at}.mlp.c_fc": block.widen,
            f"{at}.mlp.c_proj": block.mlp_project,
        }
    with torch.no_grad():
        for name, layer in weights.items():
            for part, value in layer.named_parameters():
                value.add_(torch.randn_like(value) * 0.1)  # biases, too
                other = theirs.get_submodule(name).get_parameter(part)
                other.copy_(value.t() if isinstance(layer, nn.Linear) else value)
        tokens = torch.randint(11, (5, 7))
        for length in (7, 3, 1):
            expected = theirs(tokens[:, :length]).logits
            torch.testing.assert_close(model(tokens[:, :length]), expected, atol=1e-5, rtol=1e-4)


def test_it_sees_nothing_that_comes_later() -> None:
    model = made().eval()
    tokens = torch.randint(11, (1, 7))
    for at in range(7):
        changed = tokens.clone()
        changed[0, at] = (changed[0, at] + 1) % 11
        differs = (model(tokens) != model(changed)).any(-1)[0]
        assert not differs[:at].any()
        assert differs[at:].all()


def test_weights_start_as_those_of_gpt_2() -> None:
    model = made(vocab_size=500, embedding_size=128, num_layers=8)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            wanted = 0.02 / 4 if name.endswith("project.weight") else 0.02
            assert abs(float(parameter.detach().std()) / wanted - 1) < 0.1, name
        else:
            assert (parameter == float(name.endswith("weight"))).all(), name
    first = model(torch.randint(500, (4, 7)))
    loss = nn.functional.cross_entropy(first.flatten(0, 1), torch.randint(500, (28,)))
    assert abs(float(loss.detach()) - torch.tensor(500.0).log()) < 0.3


GPT_SIZES = {"vocab_size": 11, "context_length": 7, **SIZES}
TEXTS = {"vocab_size": 50, "num_outputs": 3, "max_length": 16}
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (MLP, {"input_shape": [4], "num_outputs": 2, "activation": "relu"}, "expected one of torch"),
    (MLP, {"input_shape": [4], "num_outputs": 2, "activation": "torch.nn.Linear"}, "expected one of torch"),
    (MLP, {"input_shape": [4], "num_outputs": 2, "activation": "os.system"}, "expected one of torch"),
    (MLP, {"input_shape": [4], "num_outputs": 2, "dropout": 1.5}, "dropout probability"),
    (MLP, {"input_shape": [4], "num_outputs": 2, "hidden": [0]}, "hidden=.*>= 1"),
    (MLP, {"input_shape": [4], "num_outputs": 0}, "num_outputs=0.*>= 1"),
    (Autoencoder, {"input_shape": [4], "latent_size": 0}, r"latent_size=0"),
    (ConvAutoencoder, {"input_shape": [1, 8, 8], "widths": []}, "widths=.*>= 1"),
    (ConvAutoencoder, {"input_shape": [13]}, "takes images"),
    (SmallCNN, {"input_shape": [13], "num_outputs": 2}, r"takes images \[C,H,W\].*use model=mlp$"),
    (SmallCNN, {"input_shape": [1, 8, 8], "num_outputs": 3, "widths": [8, 0]}, "widths=.*>= 1"),
    (UNet, {"input_shape": [3, 8, 8], "num_outputs": 2, "widths": [8]}, "two or more"),
    (UNet, {"input_shape": [3, 8, 8], "num_outputs": 2, "widths": [4] * 5}, "halves pictures 4 times"),
    (SimCLR, {"encoder": nn.Identity(), "num_features": 5, "hidden": 0}, "hidden=0"),
    (BagOfEmbeddings, {"vocab_size": 0, "num_outputs": 2}, "takes texts.*use model=small_cnn for images"),
    (TextTransformer, {**TEXTS, "width": 10}, "width=10"),
    (TextTransformer, {**TEXTS, "depth": 0}, "depth=0"),
    (GPT, {**GPT_SIZES, "embedding_size": 30}, "embedding_size=30: expected"),
    (GPT, {**GPT_SIZES, "num_heads": 0}, "num_heads=0"),
    (GPT, {**GPT_SIZES, "vocab_size": 0}, "such as those of data=text_files"),
    (GPT, {**GPT_SIZES, "dropout": 1.5}, "dropout probability"),
]


@pytest.mark.parametrize(("make", "options", "message"), REFUSED)
def test_says_what_is_wrong(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_texts_that_are_too_long_for_a_gpt() -> None:
    with pytest.raises(ValueError, match=r"model.context_length is 7, and a sample has 8 tokens"):
        made()(torch.zeros(2, 8, dtype=torch.long))


def test_fast_cnn_written_out_and_mirrored() -> None:
    torch.manual_seed(0)
    model = FastCNN([3, 12, 12], 4, widths=[30], output_scale=0.5)
    images = torch.randn(5, 3, 12, 12)
    conv, norms = nn.functional.conv2d, [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    weights = dict(model.named_parameters())
    torch.testing.assert_close(  # the first 24 channels start as the identity
        conv(torch.ones(1, 24, 3, 3), weights["blocks.0.weight"], padding=1)[0, :24], torch.ones(24, 3, 3)
    )

    def gelu(values: torch.Tensor) -> torch.Tensor:
        return 0.5 * values * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (values + 0.044715 * values**3)))

    def compute(inputs: torch.Tensor) -> torch.Tensor:
        values = gelu(conv(inputs, weights["whiten.weight"], weights["whiten.bias"]))
        values = conv(values, weights["blocks.0.weight"], padding=1)
        values = gelu(norms[0](nn.functional.max_pool2d(values, 2)))
        values = gelu(norms[1](conv(values, weights["blocks.4.weight"], padding=1)))
        return 0.5 * values.flatten(2).max(2).values @ weights["head.weight"].T

    model.train()
    torch.testing.assert_close(model(images), compute(images))
    model.eval()
    torch.testing.assert_close(model(images), (compute(images) + compute(images.flip(3))) / 2)
    torch.testing.assert_close(model(images), model(images.flip(3)))


CONF = Path(__file__).parents[2] / "conf" / "model"
OF_TEXTS = {"bag_of_embeddings", "gpt", "hf_text", "text_transformer"}
OF_INPUTS = {"autoencoder", "conv_autoencoder", "simclr"}
"""Of tasks without targets: they return something else than one value per class; see their own tests."""
MASKS = ("deeplab", "pretrained_unet", "unet")
"""A class for each pixel; see below."""
OPTIONS = sorted({path.stem for path in CONF.glob("*.yaml")} - {*MASKS} - OF_TEXTS - OF_INPUTS)
DISTINCT = [option for option in OPTIONS if option != "torchvision"]
NAMES = {"timm": "test_efficientnet", "torchvision": "resnet18"}
SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32)]


def build(
    option: str, input_shape: Sequence[int], num_outputs: int, *, convert: str = "all", **changes: Any
) -> nn.Module:
    if option in NAMES:
        changes.setdefault("name", NAMES[option])
    if option == "fast_cnn" and input_shape[1] < 9:
        changes.setdefault("widths", [16, 32])
    features = 1
    for size in input_shape:
        features *= size
    config = OmegaConf.create(
        {
            "spec": {"input_shape": list(input_shape), "num_outputs": num_outputs, "num_features": features},
            "model": OmegaConf.merge(OmegaConf.load(CONF / f"{option}.yaml"), changes),
        }
    )
    settle_recipe(config)
    model = instantiate(config.model, _convert_=convert)
    assert isinstance(model, nn.Module)
    return model


def train_a_step(model: nn.Module, inputs: torch.Tensor, num_outputs: int) -> torch.Tensor:
    """One step of SGD; returns the outputs before it."""
    outputs: torch.Tensor = model(inputs)
    if outputs.ndim == 3:  # of each member of an ensemble
        outputs = outputs.mean(1)
    if num_outputs == 1:
        loss = nn.functional.mse_loss(outputs, torch.ones_like(outputs))
    else:
        targets = torch.arange(len(inputs), device=inputs.device) % num_outputs
        loss = nn.functional.cross_entropy(outputs, targets)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return outputs


@pytest.mark.parametrize(
    ("option", "input_shape", "num_outputs"),
    [
        *((option, SHAPES[0], 10) for option in OPTIONS),
        *((option, shape, 1) for option in DISTINCT for shape in SHAPES[1:]),
    ],
    ids=str,
)
def test_trains_a_step(option: str, input_shape: tuple[int, ...], num_outputs: int) -> None:
    torch.manual_seed(0)
    model = build(option, input_shape, num_outputs)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    inputs = torch.randn(4, *input_shape)
    outputs = train_a_step(model, inputs, num_outputs)
    assert outputs.shape == (4, num_outputs)
    assert outputs.isfinite().all()
    assert all(parameter.grad is not None for parameter in model.parameters())
    head = [*before][-2:]
    assert all(not torch.equal(before[name], model.get_parameter(name)) for name in head)
    assert not torch.equal(model(inputs), outputs)


@pytest.mark.parametrize("option", DISTINCT)
def test_float64_and_channels_last_change_nothing_but_rounding(option: str) -> None:
    torch.manual_seed(1)
    model = build(option, (3, 16, 16), 10).eval()
    for parameter in model.parameters():  # a head that starts at zero would hide every difference
        if parameter.ndim == 2 and not parameter.any():
            nn.init.normal_(parameter, std=0.1)
    inputs = torch.randn(4, 3, 16, 16)
    outputs = model(inputs)
    assert outputs.std() > 0
    channels_last = model.to(memory_format=torch.channels_last)(inputs.to(memory_format=torch.channels_last))
    torch.testing.assert_close(channels_last, outputs, rtol=1e-4, atol=1e-5)
    double = model.double()(inputs.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), outputs, rtol=1e-3, atol=1e-4)


@pytest.mark.long  # a compiler runs for each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("option", DISTINCT)
def test_compiled_gradients_in_half_precision(option: str, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    model = build(option, (3, 17, 17), 10)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # compiled code draws other numbers
    inputs = torch.randn(8, 3, 17, 17)
    targets = torch.arange(8) % 10

    def compute_gradients(called: Callable[..., torch.Tensor], *, half: bool = True) -> torch.Tensor:
        model.zero_grad()
        with torch.autocast("cpu", dtype=dtype, enabled=half):
            outputs = called(inputs)
            if outputs.ndim == 3:  # of each member of an ensemble
                outputs = outputs.mean(1)
            loss = nn.functional.cross_entropy(outputs, targets)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    exact = compute_gradients(model, half=False)
    rounded = compute_gradients(model)
    torch.compiler.reset()
    compiled = compute_gradients(torch.compile(model))
    assert (compiled - exact).norm() <= 1.5 * (rounded - exact).norm() + 0.02 * exact.norm()
