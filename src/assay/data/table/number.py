"""Numbers: as they are, or written with a currency, a percent sign or signs of thousands. No torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype
from typing_extensions import override

from assay.data.table.column import Column, has_few, is_number, measure
from assay.errors import DataError
from assay.quoting import reads_as_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.core.types import Bools, Floats, Strings, Values
    from assay.data.table.column import JudgedRows

TRUTH_VALUES = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
_LONG_TAIL = 2.5
"""From the median to the percentile at an end, in distances of the quartiles; 1.7 of a normal one."""
_MOST_LOOKED_AT = 50_000
_MOST_KNOTS = 256
_FEWEST_DIFFERENT = 20
_SPIKE = 0.1
"""Share of the rows."""
_FEWEST_LEVELS = 3
_MOST_LEVELS = 20
ROWS_OF_LEVEL = 100
"""Rows of an integer on average, from which something is learned of it alone."""
_PRECISE = 1e-4
"""Of a deviation, which rounding to 32 bits may cost at most."""
_SENTINEL = re.compile(
    r"-?9{2,}(\.9+)?|-[1-9]0*|-?1?0{4,}|-?\d(\.\d+)?e\+\d+|3276[78]|-3276[78]|65535|-?214748364[78]"
)
_SEVERAL = 4
"""Other values beside -1 from which on it may stand for a missing one; signs of -1, 0 and 1 do not."""


@final
@dataclass(frozen=True)
class Number(Column):
    """Numbers, or yes and no; those with a long tail are mapped to a normal distribution by their quantiles.

    Attributes:
        form: How they are written, see `find_amount`; empty: as numbers.
        shift: What is subtracted before they become 32 bits.
        knots: Values between which they are mapped to `scores` in straight lines; empty: they are not.
        scores: As many.
        spike: A value at an end of many rows, which has a feature of its own.
        levels: A few integers, in order, which become codes as well: they may be categories.
    """

    form: str = ""
    shift: float = 0.0
    knots: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()
    spike: float | None = None
    levels: tuple[float, ...] = ()

    @classmethod
    def learn(cls, cells: Values, form: str, *, impute: bool) -> Self:
        """Learn from training rows."""
        values = cells
        if form:
            values = parse_amounts(cells, form)
        numbers = to_floats(values)
        present = numbers[~np.isnan(numbers)]
        fill = 0.0
        if len(present):
            fill = float(np.median(present))
        knots, scores = _find_knots(present)
        measured = measure(numbers, fill, impute=impute)
        learned = cls(str(cells.name), **measured, form=form, knots=knots, scores=scores)
        if knots:
            return replace(learned, spike=_find_spike(present))
        return replace(learned, shift=_find_shift(present), levels=_find_levels(present))

    @property
    def kind(self) -> str:
        """Its name in `encoder.json`."""
        return "number"

    @property
    def names(self) -> list[str]:
        """The column itself, and its spike."""
        names = [self.name]
        if self.shift:
            names = [f"{self.name} - {self.shift:.12g}"]
        if self.spike is not None:
            names.append(f"{self.name} is {self.spike:.6g}")
        return names

    def parse(self, cells: Values, decimal: str = ".") -> Values:
        """Float64; NaN for what is no number."""
        if is_amount(self.form):
            return parse_amounts(cells, self.form)
        if is_number(cells):
            return cells.astype(np.float64)
        points = cells.map(
            lambda cell: use_decimal_point(str(cell).strip(), decimal), na_action="ignore"
        )
        numbers = pd.to_numeric(points, errors="coerce").astype(np.float64)
        # A column of yes and no in which another text stands, too.
        if numbers.isna().all():
            return points.map(TRUTH_VALUES).astype(np.float64)
        return numbers

    @override
    def read(self, cells: Values, judged: JudgedRows, decimal: str) -> tuple[Values, Bools]:
        values = self.parse(cells, decimal)
        wanted = "a number"
        if is_amount(self.form):
            wanted = f"a number such as {format_amount(12.5, self.form)}"
        ends = [f"{end:.6g}" for end in self.span or ()]
        numbers = values.to_numpy()
        missing = self.judge_numbers(judged, cells, values, numbers, wanted=wanted, ends=ends)
        return values, missing

    def _fill(self, values: Values) -> Floats:
        numbers = to_floats(values)
        numbers[np.isnan(numbers)] = self.fills[0]
        return numbers

    @override
    def encode(self, values: Values) -> NDArray[Any]:
        numbers = self._fill(values)
        mapped = numbers - self.shift
        if self.knots:
            mapped = np.interp(numbers, self.knots, self.scores)
        if self.spike is None:
            return mapped[:, None]
        return np.column_stack([mapped, numbers == self.spike])

    @property
    @override
    def code_names(self) -> list[str]:
        return [f"{self.name}={level:.0f}" for level in self.levels]

    @override
    def encode_codes(self, values: Values) -> NDArray[Any]:
        numbers = self._fill(values)
        codes = np.searchsorted(self.levels, numbers).clip(max=len(self.levels) - 1)
        is_known = np.asarray(self.levels)[codes] == numbers
        return np.where(is_known, codes, len(self.levels))

    @override
    def is_missing(self, values: Values) -> Bools:
        return np.isnan(to_floats(values))

    @override
    def export_inputs(self, values: Values) -> NDArray[Any]:
        return values.to_numpy()

    @property
    def fills(self) -> tuple[float, ...]:
        """What stands for a missing number."""
        if self.fill is None:
            return (np.nan,)
        return (float(self.fill),)

    @override
    def trace(self, filled: Tensor, shifted: Tensor) -> list[Tensor]:
        if not self.knots:
            return [shifted]
        mapped = [_interpolate(filled, self.knots, self.scores)]
        if self.spike is not None:
            mapped.append((filled == self.spike).to(shifted.dtype))
        return mapped

    @override
    def trace_codes(self, filled: Tensor) -> list[Tensor]:
        if not self.levels:
            return []
        import torch

        is_level = filled == torch.tensor([self.levels], dtype=torch.float64)
        codes = torch.where(is_level.any(1), is_level.to(torch.int64).argmax(1), len(self.levels))
        return [codes[:, None].to(torch.float32)]

    @override
    def describe(self, na_values: Strings) -> list[dict[str, Any]]:
        (entry,) = super().describe(na_values)
        if self.form[1:]:
            entry["unit"] = self.form[1:]
        if codes := missing_numbers(na_values):
            entry["missing_codes"] = codes
        return [entry]

    @override
    def make_up(self, count: int) -> Any:
        numbers = np.linspace(*(self.span or (0.0, 1.0)), count)
        return [format_amount(number, self.form) for number in numbers]


def to_floats(column: Values) -> Floats:
    """Float64, NaN where a value is missing or infinite."""
    values: Floats = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isinf(values), np.nan, values)


def missing_numbers(na_values: Strings) -> list[float]:
    """Numbers that stand for a missing value."""
    return [float(text) for text in na_values if reads_as_number(text)]


def use_decimal_point(text: str, decimal: str) -> str:
    """A number as pandas reads it; 1.234 is none where the decimal point is a comma."""
    if decimal == ".":
        return text
    return text.replace(".", "?").replace(decimal, ".")


def _find_knots(values: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Quantiles of a number with a long tail, and the same of a normal distribution; else nothing.

    Values that stand for several quantiles go to the middle of these.
    """
    if not _has_long_tail(values):
        return (), ()
    shares = np.linspace(0, 1, min(_MOST_KNOTS, len(values)))
    knots, places, counts = np.unique(
        np.quantile(values, shares), return_inverse=True, return_counts=True
    )
    middles = np.bincount(places, shares) / counts
    end = 1 / (2 * len(values))
    normal = NormalDist()
    scores = [normal.inv_cdf(share) for share in middles.clip(end, 1 - end)]
    return tuple(knots.tolist()), tuple(scores)


def _has_long_tail(values: Floats) -> bool:
    if len(values) < _FEWEST_DIFFERENT or len(np.unique(values[:1000])) < _FEWEST_DIFFERENT:
        return False
    # sorted, which takes a tenth of what quantiles take of a sample that is not
    sample = np.sort(values[:: max(1, len(values) // _MOST_LOOKED_AT)])
    low, lower, middle, upper, high = np.quantile(sample, [0.01, 0.25, 0.5, 0.75, 0.99])
    return bool(max(high - middle, middle - low) > _LONG_TAIL * (upper - lower))


def _find_levels(values: Floats) -> tuple[float, ...]:
    """Integers that are few, and have many rows each: also a code of each tells what numbers tell badly."""
    if len(np.unique(values[:1000])) > _MOST_LEVELS:
        return ()
    levels = np.unique(values)
    is_few = _FEWEST_LEVELS <= len(levels) <= len(values) / ROWS_OF_LEVEL
    if is_few and len(levels) <= _MOST_LEVELS and (levels % 1 == 0).all():
        return tuple(levels.tolist())
    return ()


def _find_spike(values: Floats) -> float | None:
    """The least or the largest value, where many rows have it."""
    for end in (values.min(), values.max()):
        if (values == end).mean() >= _SPIKE:
            return float(end)
    return None


def _find_shift(values: Floats) -> float:
    """What is subtracted before numbers become 32 bits, which of 1.7e9 and more keep no units."""
    if not len(values):
        return 0.0
    lost = np.abs(values).max() * np.finfo(np.float32).eps / 2
    deviation = values.std()
    if deviation and lost > _PRECISE * deviation:
        return float(f"{np.median(values):.12g}")
    return 0.0


def _interpolate(values: Tensor, knots: Sequence[float], scores: Sequence[float]) -> Tensor:
    """As `np.interp`, float32."""
    import torch

    at = torch.tensor(knots, dtype=torch.float64)
    high = torch.bucketize(values, at).clamp(1, len(knots) - 1)
    levels = torch.tensor(scores, dtype=torch.float64)
    share = ((values - at[high - 1]) / (at[high] - at[high - 1])).clamp(0, 1)
    return (levels[high - 1] + share * (levels[high] - levels[high - 1])).to(torch.float32)


def find_sentinel(column: Values) -> str:
    """A number such as 999 or 1e30 far from all others, or the only one below 0; else empty.

    It is likely to stand for a missing value.
    """
    values = column.dropna()
    if not is_number(column) or is_bool_dtype(column) or values.empty:
        return ""
    for end in (values.min(), values.max()):
        text = str(end).removesuffix(".0")
        if not _SENTINEL.fullmatch(text):
            continue
        others = values[values != end]
        if len(values) - len(others) <= 2 or has_few(others, 1):
            continue
        is_alone = end < 0 <= others.min() and (end <= -10 or others.nunique() >= _SEVERAL)
        is_large = abs(end) >= 10
        if is_alone or (is_large and abs(others - end).min() > others.max() - others.min()):
            return text
    return ""


# -- how amounts are written ---------------------------------------------------------------------------------

_SIGNS = (
    "$ USD,US$ USD,€ EUR,£ GBP,¥ JPY,₹ INR,RS INR,RS. INR,R$ BRL,A$ AUD,C$ CAD,CA$ CAD,HK$ HKD,ZŁ PLN,KČ CZK,"
    "₽ RUB,₩ KRW,₺ TRY,₫ VND,₪ ILS,₴ UAH,₦ NGN,฿ THB,₱ PHP,KR KR,KR. KR,FR. CHF"
)
_CODES = (
    "USD EUR GBP JPY INR CHF CNY CAD AUD NZD SEK NOK DKK PLN CZK HUF RON BGN TRY RUB UAH BRL MXN CLP COP ZAR"
    " NGN KES EGP ILS AED SAR KRW SGD HKD TWD THB IDR MYR PHP VND PKR BDT"
)
_CURRENCIES = {code: code for code in _CODES.split()} | {
    sign: code for sign, _, code in (pair.partition(" ") for pair in _SIGNS.split(","))
}
"""How currencies are written, in capital letters, and one name for each of them."""
_CURRENCY = "|".join(map(re.escape, sorted(_CURRENCIES, key=len, reverse=True)))
_AMOUNT = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[-+−]?)\s*(?P<before>{_CURRENCY})?\s*(?P<inner>[-+−]?)"
    r"(?P<number>(\d[\d.,'’\s]*|[.,]\d+)(e[-+]?\d+)?)\s*(?P<scale>(?-i:[kKMB])(?![a-zµ]))?\s*"
    rf"(?P<after>{_CURRENCY}|%|‰|°|[a-zµ]{{2,}}(/[a-zµ]+)?|[glmsh]|°[cf]|[cmk]?m[²³])?\s*(?P<close>\))?",
    re.I,
)
_NUMBERS = {
    ".": re.compile(
        r"(\d+|[1-9]\d{0,2}([ '’]\d{3})+|[1-9]\d{0,2}(,\d{2,3})*,\d{3})?(\.\d*)?(e[-+]?\d+)?",
        re.I,
    ),
    ",": re.compile(
        r"(\d+|[1-9]\d{0,2}([ '’]\d{3})+|[1-9]\d{0,2}(\.\d{3})+)?(,\d*)?(e[-+]?\d+)?", re.I
    ),
}
"""How a number is written, with signs of thousands or without, for each decimal sign."""
_SCALES = {"k": "e3", "K": "e3", "M": "e6", "B": "e9"}
_LONGEST_ABBREVIATION = 3
"""Of units that differ in their case, or end in s."""
_SHARES = ("%", "‰")
_CODE = re.compile(r"0\d+|\d{16,}")
_MOST_NAMED = 10
PLAIN = "."
"""The form of numbers without a unit."""


def split_amount(text: str) -> tuple[str, str] | None:
    """The number in a text, without its unit, and the unit; None of any other text.

    >>> split_amount("$ 6,165.00"), split_amount("(12 %)"), split_amount("3.5.4 kg"), split_amount("2M")
    (('6,165.00', 'USD'), ('-12', '%'), ('3.5.4', 'kg'), ('2e6', ''))
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or bool(match["open"]) != bool(match["close"]):
        return None
    before = (match["before"] or "").upper()
    after = match["after"] or ""
    if len(after) > _LONGEST_ABBREVIATION and after.upper() not in _CURRENCIES:
        after = after.lower().removesuffix("s")  # 1 year, 2 Years
    unit = _CURRENCIES.get(before) or _CURRENCIES.get(after.upper(), after)
    if before and after and _CURRENCIES.get(after.upper()) != unit:
        return None
    negative = bool(match["open"]) + sum(match[name] in ("-", "−") for name in ("sign", "inner"))
    number = re.sub(r"\s", " ", match["number"].strip()) + _SCALES.get(match["scale"], "")
    return ("-" if negative == 1 else "") + number, unit


def _reads(number: str, decimal: str) -> bool:
    return _NUMBERS[decimal].fullmatch(number.lstrip("-")) is not None


def looks_like_amount(text: str) -> bool:
    """Whether a text is a number, with its unit and signs of thousands or without."""
    amount = split_amount(text)
    return amount is not None and any(_reads(amount[0], decimal) for decimal in _NUMBERS)


def are_codes(texts: list[str]) -> bool:
    """Whether texts that look like numbers are none: zip codes, numbers of accounts and of phones."""
    if any(_CODE.fullmatch(text) for text in texts):
        return True
    digits = {len(text.replace(" ", "")) for text in texts}
    return (
        len(digits) == 1
        and max(digits) > 6
        and all(re.fullmatch(r"\d+( \d+)+", text) for text in texts)
    )


def find_amount(column: Values) -> str:
    """How the numbers of a column are written: the decimal sign, then the unit, such as `.USD` or `,%`."""
    texts = [str(value).strip() for value in column.dropna().unique()]
    amounts = {text: amount for text in texts if (amount := split_amount(text)) is not None}
    units = {unit: text for text, (_, unit) in amounts.items()}
    numbers = {text: number for text, (number, _) in amounts.items()}
    fits = {
        decimal: [
            text for text in texts if text not in numbers or not _reads(numbers[text], decimal)
        ]
        for decimal in _NUMBERS
    }
    decimal = min(fits, key=lambda sign: len(fits[sign]))
    if not fits["."] and not fits[","]:
        # Three digits are thousands of money.
        joined = "".join(numbers.values())
        is_share = not units.keys().isdisjoint(_SHARES)
        is_money = not units.keys().isdisjoint(_CURRENCIES.values())
        decimal = "."
        if is_share if "," in joined else is_money and "." in joined:
            decimal = ","
    if fits[decimal]:
        raise DataError(
            f"the column {column.name!r} looks like numbers, such as {next(iter(numbers), '')!r}, but holds "
            f"{', '.join(map(repr, fits[decimal][:_MOST_NAMED]))}",
            hint=""
            if find_words(column)
            else "write all of them in one way, with one decimal sign",
        )
    named = sorted(unit for unit in units if unit)
    if len(named) > 1 or (named and named[0] in _SHARES and any(map(_is_bare, amounts.values()))):
        examples = " and ".join(map(repr, units.values()))
        raise DataError(
            f"the column {column.name!r} mixes units: {examples}", hint="write them in one unit"
        )
    return decimal + "".join(named)


def _is_bare(amount: tuple[str, str]) -> bool:
    """Whether a number has no unit, and is not 0, which needs none."""
    return amount[1] == "" and amount[0].strip("0.,-") != ""


def find_words(column: Values) -> list[str]:
    """Texts of a column that may stand for a missing value: without a digit, or a date of zeros."""
    return [
        text
        for text in map(str, column.dropna().unique())
        if text.strip() and not re.search("[1-9]", text) and not looks_like_amount(text)
    ]


def is_amount(form: str) -> bool:
    """Whether a form is one of amounts, not of dates."""
    return form[:1] in (".", ",")


def parse_amounts(column: Values, form: str) -> Values:
    """Float64; NaN for what is not written in the form."""
    decimal = form[0]
    unit = form[1:]
    is_share = unit in _SHARES
    thousands = re.compile("[ '’,]" if decimal == "." else "[ '’.]")

    def parse(value: Any) -> float:
        if isinstance(value, int | float | np.number):
            # 0.3 may be meant as 30 %
            if is_share:
                return np.nan
            return float(value)
        amount = split_amount(str(value))
        if amount is None or amount[1] not in (unit, "") or not _reads(amount[0], decimal):
            return np.nan
        if is_share and _is_bare(amount):
            return np.nan
        return float(thousands.sub("", amount[0]).replace(decimal, "."))

    places, values = pd.factorize(column)
    parsed = np.array([*map(parse, values), np.nan], dtype=np.float64)
    return pd.Series(parsed[places], index=column.index, name=column.name)


def format_amount(number: float, form: str) -> Any:
    """A number as a column of a form holds it; of no form the number itself.

    >>> format_amount(12.5, ",%")
    '12,5 %'
    """
    if is_amount(form):
        return f"{number!r} {form[1:]}".strip().replace(".", form[0])
    return number
