"""The numbers that samples can be split, thinned out and batched by; torch-free, as the check asks too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_WHOLE: Final = {
    "batch_size": (1, None),
    "eval_batch_size": (1, None),
    "num_workers": (0, 1024),
    "prefetch_factor": (1, 1024),
}
_SHARES: Final = ("split.val", "split.test")
NAMES: Final = (*_WHOLE, *_SHARES, "imbalance")


def check_limits(values: Mapping[str, Any]) -> None:
    """Refuse numbers that no data can be split, thinned out or batched by.

    Args:
        values: By `NAMES`; None, or missing, is what is not given or not known yet.

    Raises:
        ConfigError: Naming the key.
    """
    for name, (least, most) in _WHOLE.items():
        value, bounds = values.get(name), f"from {least} to {most}" if most else f"of at least {least}"
        fits = isinstance(value, int) and least <= value <= (most or value)
        _check(name, value, fits, f"a whole number {bounds}", least)
    shares = [values.get(name) for name in _SHARES]
    for name, share in zip(_SHARES, shares, strict=True):
        fits = isinstance(share, int | float) and 0 <= share < 1
        _check(name, share, fits, "a share from 0 to below 1", 0.1)
    if sum(share or 0 for share in shares) >= 1:
        raise ConfigError(
            f"{' and '.join(map(str, shares))} leave nothing to train on",
            key="data.split.val, data.split.test",
            hint="data.split.val=0.1 data.split.test=0.2",
        )
    ratio = values.get("imbalance")
    fits = isinstance(ratio, int | float) and 0 < ratio <= 1
    _check(
        "imbalance",
        ratio,
        fits,
        "a number above 0 and at most 1, smallest class over largest,",
        "0.01, or null",
    )


def _check(name: str, value: Any, fits: bool, wanted: str, instead: object) -> None:
    if value is not None and (isinstance(value, bool) or not fits):
        key = f"data.{name}"
        raise ConfigError(f"{value} was given; {wanted} was expected", key=key, hint=f"{key}={instead}")
