SUITED_LOSSES: dict[str, dict[str, str]] = {
    "multiclass": {
        **dict.fromkeys(("cross_entropy", "focal", "ldam", "kl_div"), "multiclass"),
        "triplet": "retrieval",
    },
    "binary": {
        **dict.fromkeys(("bce_with_logits",), "binary"),
        **dict.fromkeys(("cross_entropy", "focal", "ldam", "kl_div"), "multiclass"),
        "triplet": "retrieval",
    },
    "multilabel": {"bce_with_logits": "multilabel"},
    "regression": dict.fromkeys(("mse", "l1", "huber"), "regression"),
}
"""The losses of a task, first its usual one, each with the metrics that go with it."""
