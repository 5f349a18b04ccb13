"""Links that work on a code host and on the site alike.

A page links to a file of the repository by its relative path, as a code host wants it. Here such a
link becomes one to a page of the site: README.md, CONTRIBUTING.md and CHANGELOG.md are pages, a
file of the source is shown with numbered lines, a folder as a list. Nothing has to be online.
"""

from __future__ import annotations

import html
import importlib
import inspect
import os
import re
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.application import Sphinx
from sphinx.util import logging

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {"index": "README.md", "contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
"""Pages of the site whose text is a file outside docs/."""
SCHEME = "repository:"
FENCE = re.compile(r"^(`{3,}).*?^\1`*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")

QUOTE = re.compile(
    r"\]\((?P<path>(?:\.\./)*src/[^)#\s]+\.py)\)(?P<between>[^\n]*\n\n)```python\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
"""A link to a file of the source and, in the next paragraph, lines of that file."""

logger = logging.getLogger(__name__)


def line_of(code: str, file: Path) -> int | None:
    """The line at which `file` has these very lines, however deep; None where it does not."""
    for depth in range(0, 24, 4):
        lines = textwrap.indent(code, " " * depth)
        before, found, _ = file.read_text().partition(f"\n{lines}")
        if found:
            return before.count("\n") + 2
    return None


def _with_lines(text: str, folder: Path) -> str:
    """Links before a quotation lead to the line where it begins."""

    def numbered(quote: re.Match[str]) -> str:
        line = line_of(quote["code"], folder / quote["path"])
        if line is None:
            logger.warning("%s has no such lines: %s", quote["path"], quote["code"])
        target = f"]({quote['path']}#L{line})"
        return target + quote["between"] + f"```python\n{quote['code']}```"

    return QUOTE.sub(numbered, text)


def rewrite(text: str, folder: Path) -> str:
    """The Markdown of a file in `folder`, as a page of docs/ at the same depth must have it."""
    kept, last = [], 0
    for fence in FENCE.finditer(text):
        kept += [_links(text[last : fence.start()], folder), fence[0]]
        last = fence.end()
    return "".join([*kept, _links(text[last:], folder)])


def _links(text: str, folder: Path) -> str:
    return LINK.sub(lambda link: link[1] + _target(link[2], folder) + link[3], text)


def _target(target: str, folder: Path) -> str:
    path, sharp, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return target
    there = Path(os.path.normpath(folder / path))
    page = next((name for name, file in PAGES.items() if there == ROOT / file), None)
    home = folder if DOCS in (folder, *folder.parents) else DOCS
    if page is not None:
        return f"{os.path.relpath(DOCS / page, home)}.md{sharp}{anchor}"
    if DOCS in there.parents and there.suffix in (".md", ".svg", ".png", ".csv"):
        return f"{os.path.relpath(there, home)}{sharp}{anchor}"
    return f"{SCHEME}{there.relative_to(ROOT).as_posix()}{sharp}{anchor}"


def _read(app: Sphinx, docname: str, content: list[str]) -> None:
    if docname in PAGES:
        file = ROOT / PAGES[docname]
        app.env.note_dependency(str(file))
        content[0] = rewrite(file.read_text(), ROOT) + "\n\n" + content[0]
    else:
        folder = (DOCS / docname).parent
        content[0] = rewrite(_with_lines(content[0], folder), folder)


def _resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Lead `repository:` links to the pages that `_write` makes."""
    for node in doctree.findall(nodes.reference):
        uri = node.get("refuri", "")
        if not uri.startswith(SCHEME):
            continue
        path, sharp, anchor = uri.removeprefix(SCHEME).partition("#")
        if not (ROOT / path).exists():
            logger.warning("there is no %s in the repository", path, location=node)
            continue
        node["refuri"] = app.builder.get_relative_uri(docname, f"source/{path}") + sharp + anchor
        node["internal"] = True


def _linked() -> set[Path]:
    """The files and folders outside docs/ that pages link to."""
    texts = [(ROOT / file, ROOT) for file in PAGES.values()]
    texts += [(page, page.parent) for page in DOCS.rglob("*.md")]
    uris = [
        link[2].removeprefix(SCHEME).partition("#")[0]
        for page, folder in texts
        for link in LINK.finditer(rewrite(page.read_text(), folder))
        if link[2].startswith(SCHEME)
    ]
    return {ROOT / uri for uri in uris}


def _write(app: Sphinx, error: Exception | None) -> None:
    """A page for every file that something links to: those of the pages, and all of the source."""
    if error is not None or app.builder.name != "html":
        return
    linked = {path for path in _linked() if path.exists()}
    folders = [path for path in linked if path.is_dir()]
    inside = {file for folder in folders for file in folder.iterdir() if file.suffix == ".py"}
    files = {path for path in linked if path.is_file()} | inside
    files |= set((ROOT / "src" / "spherelm").rglob("*.py"))
    for path in files:
        _write_page(app, path, _numbered(path))
    for folder in folders:
        names = sorted(file.name for file in inside if file.parent == folder)
        items = "".join(f'<li><a href="{folder.name}/{n}.html">{n}</a></li>' for n in names)
        _write_page(app, folder, f"<ul>{items}</ul>")


def _numbered(path: Path) -> str:
    """The lines of a file, each with its number and an anchor like a code host's, `#L12`."""
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    lines = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True)
    code = highlight(path.read_text(errors="replace"), lexer, lines)
    return re.sub(r'(id|name|href)="(#?)L-(\d+)"', r'\1="\2L\3"', code)


def _write_page(app: Sphinx, path: Path, body: str) -> None:
    name = path.relative_to(ROOT).as_posix()
    up = "../" * (name.count("/") + 1)
    page = SOURCE_PAGE.format(name=html.escape(name), up=up, body=body)
    file = Path(app.outdir) / "source" / f"{name}.html"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page)


SOURCE_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{up}_static/pygments.css">
<link rel="stylesheet" href="{up}_static/styles/furo.css">
<link rel="stylesheet" href="{up}_static/site.css"></head>
<body class="source"><script>document.body.dataset.theme = localStorage.getItem("theme") || "auto";
</script><p><a href="{up}index.html">spherelm</a></p><h1>{name}</h1>{body}</body></html>
"""


def source_of(module: str, name: str) -> str | None:
    """Where the site shows the source of an object, from a page one folder deep."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    found = inspect.unwrap(found) if callable(found) else found
    try:
        file, line = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
    except (TypeError, OSError):
        return None
    if file is None or not Path(file).resolve().is_relative_to(ROOT):
        return None
    path = Path(file).resolve().relative_to(ROOT).as_posix()
    return f"../source/{path}.html#L{line}"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _read)
    app.connect("doctree-resolved", _resolve)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
