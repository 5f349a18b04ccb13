"""The pages of the documentation, taken apart: code, commands in sentences, links, headings."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<kind>[^\n`]*)\n(?P<code>.*?)^(?P=indent)(?P=ticks) *$",
    re.MULTILINE | re.DOTALL,
)
SET_APART = re.compile(r"(?<=\n\n)(?: {4}[^ \n].*\n)+(?=\n|\Z)")
"""Code that is set apart by four spaces alone, as a paragraph of its own."""
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^(#{1,6}) (.*)$", re.MULTILINE)
PROGRAMS = ("spherelm", "torchrun", "make", "pip", "pytest", "python", "lm_eval", "echo", "cat")
"""What a line of a shell may begin with; `VAR=x` may come before it."""


@dataclass(frozen=True)
class Block:
    """A piece of code on a page."""

    page: Page
    kind: str
    """The word after the fence: console, python, ..., or {directive}."""
    code: str
    line: int

    @property
    def commands(self) -> list[str]:
        """The lines of a shell, each whole, without remarks."""
        joined = re.sub(r"\\\n\s*", "", self.code)
        lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines())
        return [line for line in lines if line]


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    name: str
    """Its path in the repository."""

    @property
    def path(self) -> Path:
        return ROOT / self.name

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def prose(self) -> str:
        """The page without its code blocks."""
        return SET_APART.sub("", FENCE.sub("", self.text))

    @cached_property
    def blocks(self) -> list[Block]:
        """All code blocks, in their order."""
        found = []
        for match in FENCE.finditer(self.text):
            code = textwrap.dedent(match["code"])
            found.append(Block(self, match["kind"].strip(), code, self._line(match.start())))
        fenced = [match.span() for match in FENCE.finditer(self.text)]
        for match in SET_APART.finditer(self.text):
            if not any(start <= match.start() < end for start, end in fenced):
                code = textwrap.dedent(match[0])
                if code.startswith(PROGRAMS):
                    found.append(Block(self, "console", code, self._line(match.start())))
        return sorted(found, key=lambda block: block.line)

    def _line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    @property
    def spans(self) -> Iterator[str]:
        """Commands inside sentences."""
        for span in SPAN.findall(self.prose):
            words = " ".join(span.split())
            if re.match(rf"(\w+=\S+ )?(\S+/)?({'|'.join(PROGRAMS)}) ", words):
                yield words

    @property
    def links(self) -> list[tuple[bool, str]]:
        """Whether it is a picture, and where it leads."""
        return [(bool(mark), target) for mark, target in LINK.findall(self.prose)]

    @cached_property
    def anchors(self) -> set[str]:
        """The names of the headings, as code hosts make them."""
        seen: dict[str, int] = {}
        names = set()
        for _, title in HEADING.findall(FENCE.sub("", self.text)):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
            name = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
            count = seen[name] = seen.get(name, -1) + 1
            names.add(f"{name}-{count}" if count else name)
        return names


def all_pages() -> list[Page]:
    """README, CONTRIBUTING, CHANGELOG and everything in docs/."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    paths = [*top, *sorted((ROOT / "docs").rglob("*.md"))]
    return [Page(path.relative_to(ROOT).as_posix()) for path in paths]


PAGES = all_pages()
