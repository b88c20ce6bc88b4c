"""Numbers written with a currency, a percent sign or signs of thousands, and times of day. No torch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from assay.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.data.core.types import Values

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
    r"(?P<number>(\d[\d.,'’\s]*|[.,]\d+)(e[-+]?\d+)?)\s*"
    rf"(?P<after>{_CURRENCY}|%|‰|°|[a-zµ]{{2,3}}|°[cf]|[cmk]?m[²³])?\s*(?P<close>\))?",
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
_SHARES = ("%", "‰")
_CODE = re.compile(r"0\d+|\d{16,}")
_MOST_NAMED = 10
PLAIN = "."
"""The form of numbers without a unit."""


def split_amount(text: str) -> tuple[str, str] | None:
    """The number in a text, without its unit, and the unit; None of any other text.

    >>> split_amount("$ 6,165.00"), split_amount("(12 %)"), split_amount("3.5.4 kg")
    (('6,165.00', 'USD'), ('-12', '%'), ('3.5.4', 'kg'))
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or bool(match["open"]) != bool(match["close"]):
        return None
    before = (match["before"] or "").upper()
    after = match["after"] or ""
    unit = _CURRENCIES.get(before) or _CURRENCIES.get(after.upper(), after)
    if before and after and _CURRENCIES.get(after.upper()) != unit:
        return None
    negative = bool(match["open"]) + sum(match[name] in ("-", "−") for name in ("sign", "inner"))
    number = re.sub(r"\s", " ", match["number"].strip())
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
        if not re.search(r"[1-9]|^0*\.?0*$", text)
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


TIME = "time"
"""The form of times of day."""
_TIME = r"\s*(\d{1,2})(?::([0-5]\d))?(?::([0-5]\d(?:\.\d+)?))?\s*([ap]\.?m\.?)?\s*"
_TIME_TEXT = re.compile(
    r"\s*(([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?|(0?[1-9]|1[0-2])(:[0-5]\d){0,2}\s*[ap]\.?m\.?)\s*",
    re.I,
)


def is_time(text: str) -> bool:
    """Whether a text is a time of day.

    >>> is_time("13:08"), is_time("1:08 PM"), is_time("25:10")
    (True, True, False)
    """
    return _TIME_TEXT.fullmatch(text) is not None


def parse_times(column: Values) -> Values:
    """Times of day on the first of January 1970; NaT for anything else."""
    texts = (
        column.astype(object)
        .where(column.notna(), None)
        .map(str, na_action="ignore")
        .astype("string")
    )
    parts = texts.where(texts.str.fullmatch(_TIME_TEXT)).str.extract(_TIME, flags=re.I)
    hours, minutes, seconds = (pd.to_numeric(parts[at]).astype("Float64") for at in range(3))
    is_pm = parts[3].str.casefold().str.startswith("p")
    hours = hours.where(parts[3].isna(), hours % 12 + 12 * is_pm.astype("Float64"))
    total: NDArray[Any] = (hours * 3600 + minutes.fillna(0) * 60 + seconds.fillna(0)).to_numpy(
        dtype=np.float64, na_value=np.nan
    )
    return pd.Series(pd.to_datetime(total, unit="s"), index=column.index, name=column.name)


def format_amount(number: float, form: str) -> Any:
    """A number as a column of a form holds it; of no form the number itself.

    >>> format_amount(12.5, ",%")
    '12,5 %'
    """
    if is_amount(form):
        return f"{number!r} {form[1:]}".strip().replace(".", form[0])
    return number
