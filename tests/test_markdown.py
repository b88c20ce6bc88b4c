"""Text of somebody's says in Markdown what it says, and is nothing else."""

from __future__ import annotations

import pytest

from assay.terminal import escape_markdown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("<script>", "&lt;script&gt;"),
        ("[x](http://y)", r"\[x\](http://y)"),
        ("a\n# b", r"a \# b"),
        ("`code` *bold* $x$", r"\`code\` \*bold\* \$x\$"),
        ("- a-b +c", r"\- a-b +c"),
        ("\x1b[31m", r"\\x1b\[31m"),
    ],
)
def test_text_is_text(text: str, shown: str) -> None:
    assert escape_markdown(text) == shown
