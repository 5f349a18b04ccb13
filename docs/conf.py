"""The documentation site: `make docs` builds it, a test builds it with every warning an error.

Sphinx with MyST, because the pages are the Markdown files that a code host shows as well, because
its search works from a folder without a server, and because it reads docstrings. Nothing on a page
comes from the network: no fonts, no scripts; equations are MathML, which browsers draw themselves.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from pygments.lexers import TextLexer
from sphinx.highlighting import lexers

import spherelm

project = "spherelm"
author = "The spherelm developers"
project_copyright = "2026, the spherelm developers"
version = release = spherelm.__version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.linkcode",
    "mathml",
    "plain_docstrings",
    "repository",
]
exclude_patterns = ["_ext", "_static", "results/data"]

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4
myst_url_schemes = ["http", "https", "mailto", "repository"]
suppress_warnings: list[str] = []

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False  # what torch says of `forward` says nothing of ours
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True  # AUTO, not all that it stands for
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "spherelm"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b57a4", "color-brand-content": "#0b57a4"},
    "dark_css_variables": {"color-brand-primary": "#7db7ff", "color-brand-content": "#7db7ff"},
}
lexers["console"] = TextLexer()  # commands: `eval` and `export` are no builtins here
pygments_style = "friendly"
pygments_dark_style = "github-dark"


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """The page of this site with the source of an object, for `[source]` beside it."""
    from repository import source_of

    return source_of(info["module"], info["fullname"]) if domain == "py" else None
