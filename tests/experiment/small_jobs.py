"""Every experiment, and each task that no experiment has, in a size that trains in a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from assay_explain.listing import list_options

if TYPE_CHECKING:
    from pathlib import Path

SHORT = (
    *("trainer.max_epochs=2", "trainer.limit_train_batches=4", "trainer.limit_val_batches=2"),
    *("callbacks.checkpoint.save_top_k=1", "callbacks.last_checkpoint.every_n_train_steps=1"),
)
_PICTURES = (
    *("data=synthetic", "data.source.num_samples=128", "data.source.input_shape=[3,17,17]"),
    *("data.source.num_classes=3", "data.batch_size=16", "model.widths=[8,16]", "precision=fp32"),
)
SMALLER = {
    "cifar10_cpu": _PICTURES,
    "cifar10_fast": (*_PICTURES, "device=cpu", "trainer.compile=false"),
    "digits_segmentation": (
        *("model.widths=[4,8]", "+data.source.num_samples=[64,16,24]", "data.spec.num_samples.train=64"),
        *("data.spec.num_samples.val=16", "data.spec.num_samples.test=24", "data.batch_size=8"),
    ),
    "stdlib_gpt": (
        *("data.source.root={folder}/modules", "data.source.vocab_size=300", "data.source.context_length=16"),
        *("model.num_layers=1", "model.num_heads=2", "model.embedding_size=16", "model.dropout=0.1"),
    ),
    # Tokenizing the library's own documentation takes some seconds.
    "text_topics": (
        *("data=text_table", "data.source.path={folder}/texts.csv", "data.source.text=words"),
        *("data.source.target=kind", "data.source.max_length=24", "data.batch_size=16"),
    ),
    "digits_distillation": ("augment.model.run={digits_image}",),
}
"""What makes an experiment small beyond `SHORT`, or what it needs; any other one is taken as it is."""
WITHOUT_EXPERIMENT = {
    "multilabel": (
        *("task=multilabel", "data=synthetic", "data.source.task=multilabel", "model=mlp"),
        *("data.source.num_samples=200", "data.source.input_shape=[12]", "data.source.dtype=float32"),
        *("data.source.num_classes=3", "data.batch_size=16"),
    )
}
EXPERIMENTS = sorted(option.name for option in list_options("experiment"))
NAMES = (*EXPERIMENTS, *WITHOUT_EXPERIMENT)


def words(name: str, **places: object) -> list[str]:
    """What is typed after `assay train` for a job.

    Args:
        name: One of `NAMES`.
        places: `folder`, where `write_texts` wrote, and run directories of other jobs by their name.
    """
    chosen = WITHOUT_EXPERIMENT.get(name) or (f"experiment={name}", *SMALLER.get(name, ()))
    return [*(word.format(**places) if "{" in word else word for word in chosen), *SHORT]


def write_texts(folder: Path) -> None:
    """Write the texts that jobs are trained on: a table of three kinds, and modules.

    Args:
        folder: Where.
    """
    kinds = {"fruit": ["apple", "pear", "plum"], "tool": ["hammer", "saw"], "bird": ["owl", "wren", "crow"]}
    rows = [
        {"words": f"n{number} " + " ".join(own[number % len(own) :] * (1 + number % 7)), "kind": kind}
        for number, (kind, own) in enumerate(list(kinds.items()) * 40)
    ]
    pd.DataFrame(rows).to_csv(folder / "texts.csv", index=False)
    (folder / "modules").mkdir()
    for at in range(12):
        lines = [f"def function_{at}_{line}(x):\n    return x + {line}  # <ä>\n" for line in range(12)]
        (folder / "modules" / f"{at}.py").write_text("\n".join(lines), encoding="utf-8")
