"""Text of somebody's in Markdown, as GitHub, GitLab and pandoc show it."""

from __future__ import annotations

import html
import re
from typing import Final

from assay.terminal import printable

# Marks of any place, a mathematical formula's among them; and those that begin a list.
_MARKS: Final = re.compile(r"([\\`*_\[\]|~#^$]|^[+-])")


def plain(text: object) -> str:
    r"""Text that Markdown shows letter by letter, in one line.

    Args:
        text: A name, a value.

    >>> print(plain("a*b|c <script>\n# x $y$"))
    a\*b\|c &lt;script&gt; \# x \$y\$
    """
    line = printable(" ".join(str(text).split()))
    return html.escape(_MARKS.sub(r"\\\1", line), quote=False)
