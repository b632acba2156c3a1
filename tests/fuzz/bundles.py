"""Bundles that somebody sent: damaged data, foreign drawings, parts that are something else.

``report`` renders them; the page may not run, load, send or steer, whatever the drawings hold.
"""

from __future__ import annotations

import functools
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import arrays, build
from fuzz.case import Case

#: What a drawing must not bring to the page.
EVIL = (
    "<script>FOREIGN</script>",
    '<g onload="alert(1)"/>',
    '<a href="javascript:alert(1)"><text>x</text></a>',
    '<a xlink:href="https://evil.example/"><text>x</text></a>',
    '<image href="https://evil.example/t.png"/>',
    '<image xlink:href="http://evil.example/t.png"/>',
    "<style>FOREIGN @import url(https://evil.example)</style>",
    '<foreignObject><form action="https://evil.example"><input/></form></foreignObject>',
    '<foreignObject><iframe src="https://evil.example"></iframe></foreignObject>',
    '<base href="https://evil.example"/>',
    '<meta http-equiv="refresh" content="0;url=https://evil.example"/>',
    "</svg><h1>FOREIGN</h1><svg>",
    '<use href="https://evil.example/#a"/>',
    '<animate attributeName="href" values="javascript:alert(1)"/>',
    '<set attributeName="onload" to="alert(1)"/>',
    '<path style="fill:url(https://evil.example/#a)"/>',
    '<link rel="stylesheet" href="https://evil.example"/>',
    "<text>\x1b[2J\u202e</text>",
    "<text>&#27;[2J&#x202e;</text>",
    '<a HREF="jav&#x09;ascript:alert(1)"><text>x</text></a>',
    "<svg><svg onload=alert(1)>",
    "<![CDATA[<script>FOREIGN]]>",
    "<!--><script>FOREIGN</script>-->",
    '<image href="data:text/html,<script>FOREIGN</script>"/>',
    '<feImage href="https://evil.example/x"/>',
    '<object data="https://evil.example"></object>',
    '<g ONLOAD="x" /><G OnClick=1>',
    '<x:script xmlns:x="http://www.w3.org/2000/svg">FOREIGN</x:script>',
    '<video src="https://evil.example"/>',
    '<a ping="https://evil.example" href="#x"><text>x</text></a>',
    "<h1>FOREIGN</h1>",
    "<title></title><style>FOREIGN *{display:none}</style>",
    '<button formaction="https://evil.example">',
    '<handler type="application/ecmascript">FOREIGN</handler>',
    '<image src="x" onerror="alert(1)"/>',
)


def _case(subject: str, files: dict[str, bytes], **options: Any) -> Case:
    outputs = ("bundle/report.html",)
    return Case(
        subject, ("report", "bundle"), files, base="bundle", outputs=outputs, **options
    )


@functools.cache
def _parts() -> tuple[bytes, dict[str, Any], bytes]:
    """Return the drawing, document and arrays of a small analysis."""
    import posprobe as pp
    from posprobe.report import to_json

    analysis = pp.analyze(pp.sinusoidal(8, 4), only=["norms"], nulls=0)
    svg = Path(__file__).parents[2] / "reports/digits-vit/figures/overview-budget.svg"
    stored = _packed(dict(analysis.arrays()))
    return svg.read_bytes(), json.loads(to_json(analysis.to_dict())), stored


def _packed(stored: dict[str, Any]) -> bytes:
    return build.archive(
        *((f"{name}.npy", arrays.saved(values)) for name, values in stored.items()),
        packing=8,
    )


def _sound(_: random.Random) -> Case:
    return _case("sound", {}, expected="accepted")


def _drawing(rng: random.Random) -> Case:
    """Put what acts into a drawing."""
    evil = rng.choice(EVIL).encode("utf-8", "surrogatepass")
    head = (
        b'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        b'viewBox="0 0 9 9">'
    )
    small = head + evil + b"</svg>"
    real = _parts()[0].replace(b"</svg>", evil + b"</svg>")[-6000:]
    entities = b'<!ENTITY a "' + b"x" * 50 + b'"><!ENTITY b "' + b"&a;" * 99 + b'">'
    kind, svg = rng.choice(
        (
            ("small", small),
            ("small", small),
            ("real", head + real),
            ("before", evil + head + b"</svg>"),
            ("after", head + b"</svg>" + evil),
            (
                "attribute",
                head.replace(b"viewBox", b'onload="alert(1)" viewBox') + b"</svg>",
            ),
            ("case", head.replace(b"<svg", b"<SVG") + evil.swapcase() + b"</SVG><svg/>"),
            ("doctype", b"<!DOCTYPE svg [" + entities + b"]>" + head + b"&b;</svg>"),
            ("damaged", build.damage(rng, small)[1]),
        )
    )
    name = rng.choice(("norms", "norms", "other", "x'\"><script>FOREIGN", "\x1b[2J"))
    return _case(
        f"a drawing: {kind}", {f"bundle/figures/{name.replace('/', '_')}.svg": svg}
    )


def _special(rng: random.Random) -> Case:
    """Put something else in place of a part."""
    part = rng.choice(
        ("analysis.json", "arrays.npz", "figures", "report.html", "figures/norms.svg",
         ".report.html.part")
    )  # fmt: skip
    special = {f"bundle/{part}": rng.choice((*build.SPECIAL, "link .", "link ../secret"))}
    return _case(f"{part}: special", {"secret": b"of the user"}, special=special)


def _document(rng: random.Random) -> Case:
    """Change what ``analysis.json`` says."""
    document = _parts()[1]
    schema: Any = rng.choice(
        ("posprobe.comparison/1", "posprobe.kernels/1", "posprobe.forward/1", "posprobe.analysis/2",
         None, 1, [], {})
    )  # fmt: skip
    mutated = build.dumps(build.altered(rng, document, (1, 2, 5)))
    deep = (
        b'{"schema": "posprobe.analysis/1", "table": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    )
    content = rng.choice(
        (
            mutated,
            mutated,
            build.damage(rng, build.dumps(document))[1],
            build.dumps({**document, "schema": schema}),
            build.dumps(_replaced(rng, document, rng.choice(build.HOSTILE))),
            deep,
        )
    )
    return _case("analysis.json", {"bundle/analysis.json": content})


def _replaced(rng: random.Random, value: Any, text: str) -> Any:
    """Replace some of the texts of a document."""
    if isinstance(value, dict):
        return {
            key: part if key == "schema" else _replaced(rng, part, text)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_replaced(rng, part, text) for part in value]
    return text if isinstance(value, str) and rng.random() < 0.5 else value


def _arrays(rng: random.Random) -> Case:
    """Change ``arrays.npz``."""
    stored = dict(np.load(io.BytesIO(_parts()[2])))
    name = rng.choice(sorted(stored))
    values = stored[name]
    kind, replacement = rng.choice(
        (
            (
                "shape",
                rng.choice(
                    (np.zeros((2, 2, 2)), np.float64(1), values[:0], values[..., None])
                ),
            ),
            ("nan", np.full_like(values, rng.choice((np.nan, np.inf, 1e308)))),
            ("dtype", rng.choice((values > 0, values.astype(complex), np.array(["x"])))),
            ("object", np.array([arrays.Evil()], object)),
            ("huge", np.zeros((2000, 2000), "f4")),
        )
    )
    content = _packed(stored | {name: replacement})
    if rng.random() < 0.4:
        kind, content = rng.choice((build.damage, build.repacked))(rng, _packed(stored))
    return _case(f"arrays.npz: {kind} {name}", {"bundle/arrays.npz": content})


make = build.one_of(
    (1, _sound), (5, _drawing), (2, _special), (5, _document), (4, _arrays)
)
WARM = (
    ("analyze", "sinusoidal:8x4", "--only", "norms", "--nulls", "0", "--out", "b"),
    ("report", "b"),
)
