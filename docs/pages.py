"""What MkDocs adds to the pages in this folder: a page for each config group, and the examples.

`mkdocs serve` shows the site, `mkdocs build --strict` writes it into `site/`.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from mkdocs.structure.files import File

from assay_explain.listing import Option, list_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
log = logging.getLogger("mkdocs.hooks.pages")  # a warning fails a strict build
BREAK = re.compile(r"(?<=[\w\])])[.=/,](?=[\w\[$'\"][^<>]*</code>)")
LOADED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?(https?:[^"'\s>]+)""")


def on_config(config: MkDocsConfig) -> None:
    """List the pages of groups in the navigation."""
    reference = next(part["Reference"] for part in config.nav or () if "Reference" in part)
    entry = next(part for part in reference if isinstance(part, dict) and "Config groups" in part)
    entry["Config groups"] = ["config/index.md", *({group: page_of(group)} for group in sorted(options_of()))]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are made here."""
    groups = options_of()
    pages = {page_of(group): describe_group(group, options) for group, options in groups.items()}
    pages["config/index.md"] = describe_groups(groups)
    pages["examples.md"] = show_examples()
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        pages[name] = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to the examples to their page."""
    return re.sub(r"\]\(\.\./examples/\w+\)", "](examples.md)", markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let keys in the cells of tables break after their dots and equals signs, not within a word."""
    return re.sub(r"<td\b.*?</td>", lambda cell: BREAK.sub(r"\g<0><wbr>", cell[0]), html, flags=re.S)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> None:
    """Refuse a page that loads anything from elsewhere."""
    for address in LOADED.findall(output):
        log.warning("%s loads %s", page.file.src_uri, address)


def options_of() -> dict[str, list[Option]]:
    """The options of each group; those of a subgroup stand on the page of its group."""
    groups: dict[str, list[Option]] = {}
    for option in list_options():
        group = option.group if option.group.startswith("hydra/") else option.group.partition("/")[0]
        groups.setdefault("/".join(group.split("/")[:2]), []).append(option)
    del groups["hydra/output"]  # nobody chooses it
    return groups


def page_of(group: str) -> str:
    """Where the page of a group lies."""
    return f"config/{group.replace('/', '_')}.md"


def describe_groups(groups: dict[str, list[Option]]) -> str:
    """The page that lists all groups."""
    rows = [
        f"| [`{group}`]({page_of(group).removeprefix('config/')}) | "
        + ", ".join(f"`{option.name}`" for option in options if option.group == group)
        + " |"
        for group, options in sorted(groups.items())
    ]
    head = "# Config groups\n\nEach group is a choice on the command line: `GROUP=OPTION`. "
    head += "`assay configs GROUP` prints the same, with options of your own project.\n\n"
    return head + "\n".join(["| group | options |", "|---|---|", *rows]) + "\n"


def describe_group(group: str, options: list[Option]) -> str:
    """A page: each option with its YAML, then the classes of assay that these name."""
    lines, classes = [f"# `{group}`"], dict[str, None]()
    for option in options:
        typed = f"{option.group}={option.name}"
        text = option.path.read_text(encoding="utf-8")
        body = re.sub(r"\A(#.*\n)+", "", text).strip()
        lines += [f"## `{typed}`", option.description, f"```yaml\n{body}\n```"]
        targets = [name for name in dict.fromkeys(find_targets(yaml.safe_load(text))) if name != "???"]
        lines += [f"- {describe_target(name)}" for name in targets]
        classes.update(dict.fromkeys(name for name in targets if re.match(r"assay\w*\.\w+\.", name)))
    lines += ["## Classes"] if classes else []
    lines += [f"::: {name}" for name in classes]
    return re.sub(r"\n\n- ", "\n- ", "\n\n".join(lines)).replace("```\n- ", "```\n\n- ") + "\n"


def find_targets(node: Any) -> Iterator[str]:
    """What the `_target_` keys of a config name."""
    if isinstance(node, dict):
        if isinstance(node.get("_target_"), str):
            yield node["_target_"]
        node = list(node.values())
    for child in node if isinstance(node, list) else ():
        yield from find_targets(child)


def describe_target(name: str) -> str:
    """A class with the first sentence of its docstring."""
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    sentence = re.split(r"(?<=[.:])\s|\n\n", inspect.getdoc(found) or "")[0]
    plain = re.sub(r":\w+:`~?([^`<]*?)(?: <[^>]*>)?`", r"`\1`", " ".join(sentence.split())).strip(" :`_")
    shown = f"[`{name}`][{name}]" if name.startswith("assay") else f"`{name}`"
    return f"{shown}: {plain}" if plain else shown


def show_examples() -> str:
    """The projects in `examples`, file by file."""
    lines = ["# Example projects"]
    for project in sorted((ROOT / "examples").iterdir()):
        files = [path for ending in ("py", "yaml") for path in sorted(project.rglob(f"*.{ending}"))]
        lines.append(f"## {project.name}")
        for path in files:
            text = path.read_text(encoding="utf-8").strip()
            language = {".py": "python", ".yaml": "yaml"}[path.suffix]
            title = path.relative_to(ROOT).as_posix()
            lines += [f'```{language} title="{title}"\n{text}\n```'] if text else []
    return "\n\n".join(lines) + "\n"
