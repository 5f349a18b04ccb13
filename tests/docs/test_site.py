"""The site builds without a warning, needs no network, and can be searched from a folder."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Page, browser
from tests.docs.pages import PAGES, ROOT

pytest.importorskip("sphinx")

MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    (recipe,) = re.findall(r"^\t\$\(BIN\)/sphinx-build (.*)$", MAKEFILE, re.MULTILINE)
    assert "-W" in recipe.split()
    words = recipe.replace("build/site", str(out)).split()
    command = [sys.executable, "-m", "sphinx", *words]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    return out


def html_of(name: str) -> str:
    return {
        "README.md": "index",
        "CONTRIBUTING.md": "contributing",
        "CHANGELOG.md": "changelog",
    }.get(name, name.removeprefix("docs/").removesuffix(".md")) + ".html"


def test_every_page_is_there(site: Path) -> None:
    for page in PAGES:
        assert (site / html_of(page.name)).exists(), page.name


def test_every_link_inside_the_site_leads_somewhere(site: Path) -> None:
    found = 0
    for page in site.rglob("*.html"):
        if "source" in page.relative_to(site).parts[:1]:
            continue
        for target in re.findall(r'(?:href|src)="([^"]+)"', page.read_text()):
            if re.match(r"[a-z]+:", target) or target.startswith("#"):
                continue
            path, _, anchor = target.partition("#")
            there = (page.parent / path.partition("?")[0]).resolve()
            assert there.exists(), f"{page.relative_to(site)} leads to {target}"
            if anchor and there.suffix == ".html" and "source" in there.relative_to(site).parts:
                assert f'id="{anchor}"' in there.read_text(), target
                found += 1
    assert found > 100  # lines of the source


def test_nothing_comes_from_the_network(site: Path) -> None:
    loads = re.compile(r"<(script|img|iframe|link)[^>]*? (src|href)=.https?:")
    for page in site.rglob("*.html"):
        assert not loads.search(page.read_text()), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?https?:|@import", style.read_text()), style


def test_docstrings_are_on_the_api_pages(site: Path) -> None:
    reference = (site / "api" / "ops.html").read_text()
    assert "over the last dimension" in reference
    prose = re.sub(r"(?s)<pre>.*?</pre>", "", (site / "api" / "model.html").read_text())
    assert "`" not in re.sub(r"<[^>]+>", "", prose)
    assert "Alias for field number" not in prose  # Python's own words on a named tuple
    assert "-&gt;" not in prose  # which a browser breaks in two
    assert "AUTO" in prose  # a default by its name
    assert "Choice(kernels=" not in prose


def test_equations_are_drawn_by_the_browser(site: Path) -> None:
    page = (site / "paper-in-code.html").read_text()
    assert page.count("<math") > 20
    assert "$" not in re.sub(r"<[^>]+>", "", page)


@pytest.fixture(scope="module")
def tab(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.mark.parametrize("name", ["index", "paper-in-code", "coming-from", "api/index"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_fits_and_is_silent(site: Path, tab: Page, name: str, width: int) -> None:
    tab.size(width)
    tab.open(site / f"{name}.html")
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.errors == []
    assert all(url.startswith(("file:", "data:")) for url in tab.requests)


def test_search_works_from_a_folder(site: Path, tab: Page) -> None:
    tab.call("Page.navigate", url=f"{(site / 'search.html').as_uri()}?q=retraction")
    results = "document.querySelectorAll('#search-results li').length"
    waiting = (
        "new Promise(done => { const look = () => "
        f"{results} > 3 ? done(true) : setTimeout(look, 50); look(); }})"
    )
    answer = tab.call("Runtime.evaluate", expression=waiting, awaitPromise=True)
    assert answer["result"]["value"] is True
