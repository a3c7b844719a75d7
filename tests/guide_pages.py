"""The blocks of the guide's pages, as the tests run them.

A page is read from its Markdown. What stands in fences is shown; what a reader need not see, but a block needs, stands in a
comment. Comments that mean something:

    <!-- not run: REASON -->     the next block is left out; there should be few
    <!-- run -->                 the commands of the next block are run, not only understood
    <!-- hidden LANGUAGE ... --> a block that is not shown
    <!-- adds to FILE -->        the next block of YAML stands at the end of that file, for the commands behind it

A block with a `title` is a file of that name, beside all other blocks of the page. Commands are blocks of `sh`, or lines of a
`console` that begin with $.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Block", "Page", "pages"]

ROOT = Path(__file__).parents[1]
LANGUAGES = ("", "python", "yaml", "sql", "sh", "console", "text", "csv", "json", "ndjson")
"""Fences without a language are drawings."""
_BLOCK = re.compile(
    r"^<!-- hidden (?P<hidden>\w+)(?P<hidden_told>[^\n]*)\n(?P<behind>.*?)^-->$"
    r"|^<!-- (?P<comment>.*?) -->$"
    r"|^```(?P<language>\w*)(?P<told>[^\n]*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page, `line` being its first."""

    language: str
    text: str
    line: int
    title: str | None = None
    remark: str = ""
    """What the comment right before it says."""
    shown: bool = True
    result: str | None = None
    """The `text` block right behind it: what it gives."""

    @property
    def skipped(self) -> bool:
        return self.remark.startswith("not run: ")


@dataclass(frozen=True, slots=True)
class Page:
    """A page, called like its file."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    def blocks(self, *languages: str) -> list[Block]:
        """The blocks that are to be run, in their order; files are not among them."""
        return [each for each in self.all() if each.language in languages and not each.skipped and each.title is None]

    def write_files(self, directory: Path) -> None:
        """Write the blocks that are files."""
        for each in self.all():
            if each.title is not None:
                (directory / each.title).write_text(each.text)

    def all(self) -> list[Block]:
        """All blocks, also those that are left out."""
        source = self.path.read_text()
        found: list[Block] = []
        remark, remark_end, end = "", -1, -1
        for each in _BLOCK.finditer(source):
            line = source.count("\n", 0, each.start()) + 1
            near = source[remark_end : each.start()].strip() == "" if remark_end >= 0 else False
            if each["comment"] is not None:
                remark, remark_end = each["comment"], each.end()
            elif each["hidden"] is not None:
                found.append(Block(each["hidden"], each["behind"], line, _title(each["hidden_told"]), shown=False))
            else:
                behind = found[-1] if found and source[end : each.start()].strip() == "" and end >= 0 else None
                if each["language"] == "text" and behind is not None and behind.shown:
                    found[-1] = Block(
                        behind.language, behind.text, behind.line, behind.title, behind.remark, result=each["text"]
                    )
                else:
                    said = remark if near else ""
                    found.append(Block(each["language"], each["text"], line, _title(each["told"]), said))
                end = each.end()
        return found


def _title(told: str) -> str | None:
    found = _TITLE.search(told)
    return found[1] if found else None


def pages() -> list[Page]:
    """The README and all pages of the guide."""
    return [Page(each) for each in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]
