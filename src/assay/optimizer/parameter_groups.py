from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from assay.errors import check_numbers
from assay.layer_depth import distances_from_head

if TYPE_CHECKING:
    from torch import nn

_CONDITIONS = frozenset({"match", "max_ndim"})
_OPTIONS = frozenset(
    {"name", "lr", "lr_scale", "weight_decay", "momentum", "nesterov", "betas", "eps", "use_muon"}
)
_NUMBERS = frozenset({"lr", "lr_scale", "weight_decay", "momentum", "eps"})


@final
class ParameterGroups:
    """Sorts a model's trainable parameters into an optimizer's groups.

    Each rule states which parameters it takes and the options they get. The first rule that matches wins;
    parameters no rule takes form the last group, `default`, with the optimizer's own options.

    *Layer-wise decay* (Bao et al. 2022, *BEiT*): the layer at distance d from the head learns with
    `lr * layer_decay**d`, the head itself with `lr` (`assay.layer_depth` defines layers). The `lr` of a
    rule decays as well.

    Args:
        rules: Each a mapping with `match` (regular expression, searched in the parameter's name), `max_ndim`
            (largest number of dimensions; 1 takes biases and norms) or both, and the options of its group:
            `lr` or `lr_scale` (times the optimizer's lr), `weight_decay`, `momentum`, `nesterov`, `betas`,
            `eps`, `use_muon`, and `name`, under which the group's lr is logged.
        layer_decay: Factor from one layer to the one before it, in (0, 1]; None: no decay.

    Raises:
        ValueError: A rule has an unknown key, no condition, both `lr` and `lr_scale`, a value out of its
            range, or one that is not a regular expression; two groups have one name; `layer_decay` is out of
            range.
    """

    def __init__(
        self, rules: Sequence[Mapping[str, Any]] = (), layer_decay: float | None = None
    ) -> None:
        check_numbers("(0, 1]", layer_decay=layer_decay)
        self._rules = [_parse_rule(dict(rule), index) for index, rule in enumerate(rules)]
        self._layer_decay = layer_decay
        names = [*(_group_name(rule, index) for index, rule in enumerate(self._rules)), "default"]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"param_groups.rules has more than one group called {name}; rename one"
                )

    def __call__(self, model: nn.Module, lr: float) -> list[dict[str, Any]]:
        """Sort the parameters of a model."""
        names = [name for name, _ in model.named_parameters()]
        distances = distances_from_head(model)
        groups: dict[tuple[int, int], dict[str, Any]] = {}
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            matching = (
                i
                for i, rule in enumerate(self._rules)
                if _rule_matches(rule, name, parameter.ndim)
            )
            index = next(matching, len(self._rules))
            distance = 0
            if self._layer_decay is not None:
                distance = distances[name]
            if (index, distance) not in groups:
                groups[index, distance] = self._group(index, distance, lr)
            groups[index, distance]["params"].append(parameter)
        if not groups:
            raise ValueError(
                "the model has no trainable parameter; unfreeze some or choose another model"
            )
        used = {index for index, _ in groups}
        for index in range(len(self._rules)):
            if index not in used:
                raise ValueError(
                    f"param_groups.rules[{index}] takes no parameter that is trained and that no earlier "
                    f"rule takes; parameters of this model: {', '.join(names[:3])}, …"
                )
        return [groups[key] for key in sorted(groups, key=lambda key: (key[0], -key[1]))]

    def _group(self, index: int, distance: int, lr: float) -> dict[str, Any]:
        rule: Mapping[str, Any]
        if index < len(self._rules):
            rule = self._rules[index]
        else:
            rule = {"name": "default"}
        group: dict[str, Any] = {"params": [], "name": _group_name(rule, index)}
        group |= {
            key: value
            for key, value in rule.items()
            if key not in _CONDITIONS | {"name", "lr_scale"}
        }
        if "lr_scale" in rule:
            group["lr"] = lr * rule["lr_scale"]
        if self._layer_decay is not None:
            group["lr"] = group.get("lr", lr) * self._layer_decay**distance
            group["name"] += f"/{distance}_from_head"
        return group


def _parse_rule(rule: dict[str, Any], index: int) -> dict[str, Any]:
    """Check a rule; return it without nulls and with its regular expression compiled."""
    key = f"param_groups.rules[{index}]"
    allowed = _CONDITIONS | _OPTIONS
    if unknown := rule.keys() - allowed:
        raise ValueError(
            f"{key} has the unknown key {min(unknown)!r}; expected {', '.join(sorted(allowed))}"
        )
    rule = {name: value for name, value in rule.items() if value is not None}
    if not rule.keys() & _CONDITIONS:
        raise ValueError(f"{key} has no condition; add match (a regular expression) or max_ndim")
    if "lr" in rule and "lr_scale" in rule:
        raise ValueError(f"{key} has both lr and lr_scale; keep one")
    check_numbers(
        "[0, 100]",
        **{f"{key}.{name}": rule[name] for name in (_NUMBERS | {"max_ndim"}) & rule.keys()},
    )
    if "match" in rule:
        rule["match"] = re.compile(rule["match"])
    # Lists become tuples: an optimizer's state may hold plain containers only.
    return {
        name: tuple(value)
        if isinstance(value, Sequence) and not isinstance(value, str)
        else value
        for name, value in rule.items()
    }


def _group_name(rule: Mapping[str, Any], index: int) -> str:
    return str(rule.get("name", f"rule_{index}"))


def _rule_matches(rule: Mapping[str, Any], name: str, ndim: int) -> bool:
    return ("match" not in rule or rule["match"].search(name) is not None) and ndim <= rule.get(
        "max_ndim", ndim
    )
