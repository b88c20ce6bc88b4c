"""Predictions of each task, drawn at random and better than chance."""

from __future__ import annotations

import numpy as np

from assay.task.predictions import StoredPredictions


def of_classes(
    num_classes: int = 4, num_samples: int = 300, names: tuple[str, ...] = ()
) -> StoredPredictions:
    generator = np.random.default_rng(num_classes)
    targets = generator.integers(0, num_classes, num_samples)
    logits = generator.normal(size=(num_samples, num_classes)) * 1.5
    logits[np.arange(num_samples), targets] += 1.5
    outputs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return StoredPredictions(
        "binary" if num_classes == 2 else "multiclass",
        "probabilities",
        tuple(str(row) for row in range(num_samples)),
        outputs.astype(np.float32),
        targets,
        names or tuple(f"c{label}" for label in range(num_classes)),
    )


def of_labels(num_labels: int = 3, num_samples: int = 300) -> StoredPredictions:
    generator = np.random.default_rng(1)
    targets = (generator.random((num_samples, num_labels)) < 0.4).astype(np.int8)
    outputs = np.clip(generator.normal(0.3 + 0.4 * targets, 0.2), 0, 1).astype(np.float32)
    names = tuple(f"l{label}" for label in range(num_labels))
    return StoredPredictions(
        "multilabel", "probabilities", tuple(map(str, range(num_samples))), outputs, targets, names
    )


def of_values(num_targets: int = 1, num_samples: int = 300) -> StoredPredictions:
    generator = np.random.default_rng(2)
    targets = generator.normal(1000, 5, (num_samples, num_targets)).astype(np.float32)
    outputs = (targets + generator.normal(0, 2, targets.shape)).astype(np.float32)
    names = tuple(f"t{index}" for index in range(num_targets))
    return StoredPredictions(
        "regression", "values", tuple(map(str, range(num_samples))), outputs, targets, names
    )


def of_embeddings(num_samples: int = 200) -> StoredPredictions:
    generator = np.random.default_rng(3)
    targets = generator.integers(0, 3, num_samples)
    outputs = (generator.normal(size=(num_samples, 8)) + 2 * np.eye(8)[targets]).astype(np.float32)
    return StoredPredictions(
        "multiclass", "embeddings", tuple(map(str, range(num_samples))), outputs, targets, ("a", "b", "c")
    )
