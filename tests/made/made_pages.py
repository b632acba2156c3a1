"""Pages of every kind, made once each, and a parser for them."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from made_bundles import analysis_of
from made_forward import default_results, forward_analysis
from made_schemes import buckets, linear, rotary, source, window
from made_tables import as_table, gaussian, patches, walk, waves

import posprobe as pp
from posprobe.layouts import Grid, Sequence
from posprobe.schemes import RelativeBias
from posprobe.sources import Source
from posprobe.studies.kernels import compare_kernels
from posprobe.studies.resizing import compare
from posprobe.studies.schemes import analyze_schemes
from posprobe.tables import DroppedRow, PositionTable, PrefixRow

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = Path(pp.__file__).parent / "report" / "templates" / "page.js"
VOID_ELEMENTS = {
    "meta",
    "link",
    "br",
    "img",
    "input",
    "hr",
    "col",
    "base",
    "wbr",
    "source",
    "area",
}


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """A parsed page; unmatched tags are an error."""

    source: str
    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()
        assert self.open == [], f"never closed: {[element.name for element in self.open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID_ELEMENTS:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID_ELEMENTS:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        opened = self.open.pop()
        assert opened.name == tag, f"</{tag}> closes <{opened.name}>"

    def handle_data(self, data: str) -> None:
        # The content of a script is no text of the page.
        script = self.open and self.open[-1].name == "script"
        for element in self.open[-1:] if script else self.open:
            element.text += data

    def all(self, *names: str) -> list[Element]:
        return [element for element in self.elements if element.name in names]

    def values(self, attribute: str) -> list[str]:
        return [
            e.attributes[attribute] for e in self.elements if attribute in e.attributes
        ]

    def runs_only_own_scripts(self) -> bool:
        """Return whether all scripts are the package's own, as the policy demands."""
        scripts = [e.text for e in self.all("script")]
        (policy,) = (
            e.attributes["content"]
            for e in self.all("meta")
            if e.attributes.get("http-equiv") == "Content-Security-Policy"
        )
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules["default-src"] == "'none'"
        digests = [
            base64.b64encode(hashlib.sha256(script.encode()).digest())
            for script in scripts
        ]
        allowed = [f"'sha256-{digest.decode()}'" for digest in digests] or ["'none'"]
        assert [rules["script-src"]] == allowed
        return scripts in ([], [SCRIPT.read_text(encoding="utf-8")])


def with_special_rows() -> PositionTable:
    """Return a table with everything that a page can show."""
    values = waves(64, [5.0, 9.0], noise=0.02)
    values[10] *= 30
    return replace(
        as_table(values)[5:],
        prefix=np.ones((1, 4)),
        prefix_rows=(PrefixRow(0, "CLS"),),
        dropped=(DroppedRow(1, "padding"),),
        notes=("a note",),
    )


#: Encodings without a table.
SCHEMES: dict[str, Callable[[], Any]] = {
    "T5": lambda: (
        buckets(6, 300, notes=("a note",)),
        buckets(6, 300, "decoder", 1, causal=True),
    ),
    "Swin": lambda: tuple(
        window(7, 7, 3 * 2 ** (k // 6), f"layers.{k}.attn", k) for k in range(24)
    ),
    "BEiT": lambda: (window(4, 4, 12, special={"token to CLS": np.zeros(12)}),),
    "stretched": lambda: (rotary(scaling={"rope_type": "linear", "factor": 8.0}),),
    "flat": lambda: (
        RelativeBias(np.ones((2, 9)), Sequence(9), "zero", source()),
        rotary(max_positions=None, training_length=None),
    ),
    "schemes": lambda: (
        rotary(),
        linear(112),
        buckets(3),
        window(),
        buckets(1, 30, "cosines", quantity="cosine"),
    ),
}
PAGES: dict[str, Callable[[], Any]] = {
    "sequence": lambda: pp.analyze(
        with_special_rows(), nulls=2, command="posprobe analyze x"
    ),
    "patches": lambda: pp.analyze(patches(14, 12, 12), nulls=1),
    "constant": lambda: pp.analyze(as_table(np.full((64, 4), 0.1), Grid(8, 8)), nulls=1),
    "short": lambda: pp.analyze(as_table(gaussian(2, 3)), nulls=1),
    "all-minilm-l6-v2": lambda: analysis_of("all-minilm-l6-v2"),
    "comparison": lambda: pp.compare(
        as_table(walk(40, 6)), pp.sinusoidal(40, 6), nulls=1
    ),
    "run": lambda: forward_analysis(results=default_results()),
    "run of everything": lambda: forward_analysis(
        missing={"blank": "it takes no images"}, notes=("a note",)
    ),
    "run on images": lambda: forward_analysis(Grid(4, 5)),
    "kernels": lambda: compare_kernels(
        as_table(walk(40, 6)), rotary(), linear(), buckets(), seed=3
    ),
    "ways": lambda: compare(as_table(walk(40, 6)), to=60),
    "rules": lambda: compare((rotary(),), to=8192),
    "check": lambda: pp.check(as_table(walk(40, 16)), as_table(walk(40, 16)[2:])),
    **{
        name: lambda make=make: analyze_schemes(*make())  # type: ignore[misc]
        for name, make in SCHEMES.items()
    },
}


@cache
def content(name: str) -> Any:
    return PAGES[name]()


@cache
def save_page(base: Path, name: str) -> Path:
    """Return a folder with the bundle of that name; each is made once below a base."""
    folder: Path = content(name).save(base / "pages" / name)
    return folder


@cache
def parse_page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


# Hostile names.

HOSTILE_TEXTS = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '"><script>alert(1)</script>',
    "' onmouseover='alert(1)",
    "</style></title></svg><script>alert(1)</script>",
    "{{ 7 * 191 }}{% raw %}",
    "<!-- ]]> &lt;b&gt; &amp;",
    "$\\frac{1}{0}$ \x01 \\u0041",
]


def hostile_table(text: str) -> PositionTable:
    """Return a table with ``text`` wherever a checkpoint can place its own text."""
    source = Source(
        reference=text, resolved=text, revision=text, file=text, tensor=text, shape=(13, 4),
        dtype=text, sha256="0" * 64,
    )  # fmt: skip
    return replace(
        as_table(walk(12, 4)),
        name=text,
        source=source,
        family=text,
        prefix=np.ones((1, 4)),
        prefix_rows=(PrefixRow(0, text),),
        dropped=(DroppedRow(1, text),),
        notes=(text, text),
    )
