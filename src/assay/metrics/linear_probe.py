from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_cat

if TYPE_CHECKING:
    from numpy.typing import NDArray


@final
class LinearProbe(Metric):
    """Accuracy of a logistic regression on features, fitted to a few labelled samples of the training subset.

    scikit-learn's, with its default L2 penalty, on standardised features: no randomness but the choice of
    samples, and a bounded number of steps. NaN until `fit` was called, or where nothing was seen.

    Args:
        num_per_class: Labelled training samples of each class; None: all of them.
        max_samples: Labelled training samples in all.
        max_iter: Steps of the regression.
        seed: Of the choice of samples.

    Raises:
        ValueError: A number is below 1.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    features: list[Tensor]
    labels: list[Tensor]

    def __init__(
        self,
        num_per_class: int | None = 10,
        *,
        max_samples: int = 5000,
        max_iter: int = 200,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if min(1 if num_per_class is None else num_per_class, max_samples, max_iter) < 1:
            raise ValueError(
                f"num_per_class={num_per_class}, max_samples={max_samples}, max_iter={max_iter}: numbers of "
                "at least 1 were expected."
            )
        self.num_per_class, self.max_samples = num_per_class, max_samples
        self.max_iter, self.seed = max_iter, seed
        self._fitted_on: tuple[NDArray[np.float64], NDArray[np.int64]] | None = None
        self.add_state("features", default=[], dist_reduce_fx="cat")
        self.add_state("labels", default=[], dist_reduce_fx="cat")

    def chosen(self, labels: Tensor) -> Tensor:
        """Which training samples to fit on: int64, ascending."""
        generator = np.random.default_rng(self.seed)
        order = generator.permutation(len(labels))
        values = labels.cpu().numpy()[order]
        kept = np.ones(len(order), dtype=bool)
        if self.num_per_class is not None:
            for label in np.unique(values):
                kept[np.flatnonzero(values == label)[self.num_per_class :]] = False
        return torch.from_numpy(np.sort(order[kept][: self.max_samples]))

    def fit(self, features: Tensor, labels: Tensor) -> None:
        """Say what to fit on, in place of what was said before."""
        self._fitted_on = features.detach().double().cpu().numpy(), labels.cpu().numpy()

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Keep a batch to be judged on."""
        if preds.ndim != 2 or target.is_floating_point() or target.shape != preds.shape[:1]:
            raise ValueError(
                f"a linear probe needs features [B, D] and integer labels [B], got {list(preds.shape)} and "
                f"{target.dtype} {list(target.shape)}: without labels use metrics=none."
            )
        self.features.append(preds.detach())
        self.labels.append(target)

    def compute(self) -> Tensor:
        """Share of samples whose label the regression says: a scalar."""
        if self._fitted_on is None or not len(self.labels):
            return torch.full((), torch.nan, device=self.device)
        points, labels = dim_zero_cat(self.features), dim_zero_cat(self.labels)
        said = self._said(*self._fitted_on, points.double().cpu().numpy())
        return torch.tensor((said == labels.cpu().numpy()).mean(), dtype=torch.float32, device=points.device)

    def _said(
        self, features: NDArray[np.float64], labels: NDArray[np.int64], points: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        import warnings

        from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]  # it has no stubs
        from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]  # it has no stubs
        from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]  # it has no stubs
        from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]  # it has no stubs

        said: NDArray[np.int64]
        if not (np.isfinite(features).all() and np.isfinite(points).all()) or len(np.unique(labels)) < 2:
            return np.full(len(points), -1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the number of steps is bounded on purpose
            probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=self.max_iter))
            said = probe.fit(features, labels).predict(points)
        return said
