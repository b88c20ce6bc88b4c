"""Text encoders of transformers, with tiny random weights that are saved here."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]  # ships no types
import pandas as pd
import pytest
import torch
from tests.conftest import unchanged_process
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedTokenizerFast

import assay
from assay.data.text.tokenizer import TextEncoder, pretrained_tokenizer
from assay.errors import AssayError, ConfigError, DataError
from assay.finetune.gradual import Gradual
from assay.finetune.lora import LoRA
from assay.model.hf_folder import KINDS
from assay.model.hf_text import HFText
from assay_serve.evaluate import evaluate
from assay_serve.export.export import export

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained
    from torch import Tensor

WORDS = {"fruit": ["apple", "pear", "plum"], "tool": ["hammer", "saw", "drill"]}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
SMALL: dict[str, dict[str, Any]] = {
    **{kind: {"model_type": kind, **SIZES, "max_position_embeddings": 40} for kind in KINDS},
    "distilbert": {
        "model_type": "distilbert",
        "dim": 32,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 64,
        "max_position_embeddings": 40,
    },
}
SMALL["modernbert"] |= {"pad_token_id": 3, "cls_token_id": 1, "sep_token_id": 2}
TEXTS = ["Apple the saw", "plum", "the of the of pear hammer unheardof"]


def texts_of(number: int) -> list[tuple[str, str]]:
    draw = random.Random(0)
    kinds = [draw.choice(list(WORDS)) for _ in range(number)]
    return [
        (" ".join(draw.choices([*WORDS[kind], "the", "of"], k=draw.randint(3, 30))), kind) for kind in kinds
    ]


def save(folder: Path, kind: str) -> Path:
    """What `save_pretrained` leaves of a network with a head of its own task and of its tokenizer."""
    folder.mkdir(parents=True)
    special = ["<s>", "<pad>", "</s>", "<unk>"] if kind == "roberta" else ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    first, last = (0, 2) if kind == "roberta" else (1, 2)
    if kind == "roberta":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer: Any = trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False)
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", last), ("<s>", first))
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token=special[3]))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", first), ("[SEP]", last)]
        )
    tokenizer.train_from_iterator([text for text, _ in texts_of(80)], trainer)
    fast_of: Any = PreTrainedTokenizerFast
    fast = fast_of(tokenizer_object=tokenizer, pad_token=special[1 if kind == "roberta" else 0])
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    settings = {**SMALL[kind], "vocab_size": tokenizer.get_vocab_size()}
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    network: Any = AutoModelForMaskedLM
    network.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("hf") / "bert", "bert")


def made(folder: Path, **options: Any) -> HFText:
    config: Any = json.loads((folder / "config.json").read_text())
    network = HFText("auto", config["vocab_size"], 2, 24, weights=str(folder), **options)
    return network.eval()


def states(network: Any, fast: Any) -> tuple[Tensor, Tensor]:
    batch = fast(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        values = network(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    return values.last_hidden_state, batch["attention_mask"]


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_texts_become_what_transformers_makes_of_them(tmp_path: Path, kind: str) -> None:
    """Ids of a network whose padding is not 0 change places on the way, and back."""
    folder = save(tmp_path / "hf", kind)
    fast = PreTrainedTokenizerFast.from_pretrained(folder)
    values, mask = states(AutoModel.from_pretrained(folder).eval(), fast)
    known = HFText.trained_on("auto", str(folder))
    encoder = TextEncoder("text", max_length=24)
    encoder.use(known["tokenizer"], known["padding"], known["source"])
    encoder.fit(frame := pd.DataFrame({"text": TEXTS}), np.arange(3))
    ids = encoder.transform(frame)
    assert (ids != 0).sum(1).tolist() == mask.sum(1).tolist()
    network, first = made(folder), made(folder, pooling="cls")
    assert network.new_layers == ("head",)
    with torch.no_grad():
        mean = (values * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        torch.testing.assert_close(network(ids), network.head(mean), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            first(ids[:, : mask.shape[1]]), first.head(values[:, 0]), rtol=1e-5, atol=1e-6
        )
    long = TextEncoder("text", max_length=5)
    long.use(known["tokenizer"], known["padding"], known["source"])
    long.fit(frame, np.arange(3))
    swapped = torch.where(
        (cut := torch.tensor(fast(TEXTS[2], truncation=True, max_length=5)["input_ids"])) == 0,
        known["padding"],
        cut,
    )
    assert long.transform(frame)[2].tolist() == swapped.tolist(), "the last token stays that of the end"
    again = pretrained_tokenizer(encoder.tokenizer.to_json())
    assert again.encode(TEXTS) == encoder.tokenizer.encode(TEXTS)
    assert (again.unknown, again.num_closing) == (encoder.tokenizer.unknown, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_network_reads_alike_however_far_texts_are_padded(kind: str) -> None:
    torch.manual_seed(0)
    network = HFText(SMALL[kind], 50, 3, 24).eval()
    tokens = torch.randint(4, 50, (3, 7))
    tokens[1, 4:] = 0
    with torch.no_grad():
        expected = network(tokens)
        torch.testing.assert_close(network(torch.nn.functional.pad(tokens, (0, 9))), expected)
        torch.testing.assert_close(network(tokens[1:2, :4]), expected[1:2])
        assert network(torch.zeros(1, 4, dtype=torch.int64)).isfinite().all()
    assert expected.std() > 0
    LoRA(rank=2).prepare(network)
    adapted = {
        name.split(".parametrizations")[0] for name, _ in network.named_parameters() if "lora_A" in name
    }
    assert len(adapted) >= 2 * 4, adapted
    layered = HFText(SMALL[kind], 50, 3, 24)
    (gradual := Gradual()).prepare(layered)
    assert gradual.last_change(layered) == 3  # the layers one by one, then the embedding
    network.train()(tokens).sum().backward()
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    assert trained
    assert all(parameter.grad is not None for parameter in trained), "several processes need all of them"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    pd.DataFrame(texts_of(120), columns=["words", "kind"]).to_csv(path, index=False)
    return path


def job(table: Path, folder: Path) -> tuple[str, ...]:
    return (
        *(
            "data=text_table",
            f"data.source.path={table}",
            "data.source.text=words",
            "data.source.target=kind",
        ),
        *("data.source.max_length=24", "data.batch_size=32", "optimizer.lr=0.01", "model=hf_text"),
        f"model.weights={folder}",
    )


def test_a_run_needs_nothing_but_its_directory(train: Train, bert: Path, table: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bert, tmp_path / "bert")
    run: Trained = train(
        *(*job(table, folder), "finetune=lora", "finetune.rank=2", "trainer.max_epochs=6"),
        "callbacks=[checkpoint,last_checkpoint]",
    )
    assert run.watch.falls()
    log = (run.run_dir / "log.txt").read_text()
    assert f"tokens of {folder}; data.source.vocab_size and lowercase have no effect" in log
    assert "not for head, which" in log
    assert run.config.model.config.hidden_size == 32
    shutil.rmtree(folder)
    written = pd.read_csv(table)["words"]
    predictor = assay.load(run.run_dir, checkpoint="last", map_location="cpu")
    rows = run.datamodule.splits.rows["test"]
    run.module.load_state_dict(run.checkpoint("last")["state_dict"])
    with torch.no_grad():
        chance = run.module.eval()(run.datamodule.splits.data["test"].inputs[rows]).sigmoid()
        expected = torch.cat([1 - chance, chance], 1)
    with pytest.warns(UserWarning, match="has more than 24 tokens"):
        found = predictor(pd.DataFrame({"words": written.iloc[rows]})).probabilities
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with unchanged_process():
        again = evaluate(run.run_dir, checkpoint="last")
    assert again.metrics["test/loss"] == run.record["metrics"]["test/loss"]
    exported = export(run.run_dir, checkpoint="last", out=tmp_path / "onnx")
    fast = Tokenizer.from_file(str(exported.path.with_name("tokenizer.json")))
    fast.enable_truncation(24)
    fast.enable_padding(pad_id=0)
    ids = np.array([one.ids for one in fast.encode_batch(written.iloc[rows].tolist())])
    outputs, *_ = onnxruntime.InferenceSession(exported.path).run(None, {"inputs": ids})
    np.testing.assert_allclose(outputs, found, atol=1e-5)
    with pytest.raises(AssayError, match="finetune=lora: `assay export"):
        train(*job(table, run.run_dir))


def changed(folder: Path, name: str, **values: Any) -> None:
    plain = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**plain, **values}))


def without(name: str) -> Any:
    return lambda folder: (folder / name).unlink()


def config(**values: Any) -> Any:
    return lambda folder: changed(folder, "config.json", **values)


def made_for_texts(folder: Path) -> None:
    """As a run does: the data first, then the model."""
    known = HFText.trained_on("auto", str(folder))
    encoder = TextEncoder("text", max_length=24)
    encoder.use(known["tokenizer"], known["padding"], known["source"])
    encoder.fit(pd.DataFrame({"text": TEXTS}), np.arange(3))
    HFText("auto", encoder.vocab_size, 2, 24, weights=str(folder))


@pytest.mark.parametrize(
    ("spoil", "key", "says"),
    [
        (without("config.json"), "model.weights", r"config\.json cannot be read"),
        (config(model_type="gpt2"), "model.config", r"config\.json: model_type is 'gpt2', which is not"),
        (config(model_type="vit"), "model.config", "'vit', which is not a supported"),
        (config(note="${oc.env:HOME}"), "model.weights", "not plain settings"),
        (config(more={"_target_": "os.system"}), "model.weights", "not plain settings"),
        (config(vocab_size=50), "data.source.tokenizer", "the tokenizer has 5. tokens, the network only 50"),
        (config(pad_token_id=99), "", r"no token with the id 99"),
        (config(max_position_embeddings=20), "data.source.max_length", "at most 20 tokens .* got 24"),
        (without("model.safetensors"), "model.weights", "has no model.safetensors"),
        (without("tokenizer.json"), "model.weights", r"tokenizer\.json cannot be read"),
    ],
)
def test_a_folder_that_is_something_else_is_one_message(
    bert: Path, tmp_path: Path, spoil: Any, key: str, says: str
) -> None:
    folder = shutil.copytree(bert, tmp_path / "spoilt")
    spoil(folder)
    with pytest.raises((ConfigError, DataError), match=says) as caught:
        made_for_texts(folder)
    assert getattr(caught.value, "key", "") == key
    assert caught.value.hint


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (("data.source.tokenizer=word",), "tokenizer=word: the weights of .* with tokens of their own"),
        (("model.weights=org/name",), r"^model\.weights: org/name is not a folder; expected one with"),
        (("model.weights=null",), r"^model\.config: auto reads config\.json"),
        (("data=digits",), r"^model: vocab_size=0: model=hf_text takes texts"),
    ],
)
def test_what_cannot_be_is_refused_before_a_run_begins(
    train: Train, bert: Path, table: Path, *, typed: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    words = [*job(table, bert), *typed]
    if "data=digits" in typed:
        words = ["data=digits", "model=hf_text", f"model.weights={bert}"]
    with pytest.raises((ConfigError, DataError), match=says) as caught:
        train(*words, cwd=tmp_path)
    assert caught.value.hint
    assert not list(tmp_path.iterdir())


def test_a_pickle_is_judged_and_code_of_a_repository_is_not_run(bert: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bert, tmp_path / "old")
    changed(folder, "config.json", auto_map={"AutoModel": "code.Evil"}, architectures=["Evil"])
    (folder / "code.py").write_text("raise SystemExit('run')")
    expected = made(bert).encoder.state_dict()
    (folder / "model.safetensors").unlink()
    legacy = {
        f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma"): v for name, v in expected.items()
    }
    torch.save(legacy, folder / "pytorch_model.bin")
    found = made(folder).encoder.state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    torch.save({"bert.a": shutil.rmtree}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="holds no weights that can be read safely"):
        made(folder)
