"""Places to write to: folders and files of the user, links, devices, and damaged bundles.

Whatever is not posprobe's own stays as it is; after an error everything does.
"""

from __future__ import annotations

import random

from fuzz import build
from fuzz.case import Case

#: Names that a bundle uses as well.
OWN = (
    "figures/mine.svg",
    "figures/norms.svg",
    "report.html",
    "analysis.json",
    "arrays.npz",
    ".report.html.part",
    "analysis.json.bak",
    "figures.zip",
)
MINE = b"written by the user\n"


def make(rng: random.Random) -> Case:
    """Make one place with something in it, and write there."""
    return build.pick(rng, (5, _foreign), (3, _touched), (3, _file), (2, _links), (2, _odd))(rng)


def _argv(rng: random.Random, place: str) -> tuple[str, ...]:
    return rng.choice(
        (
            ("analyze", "sinusoidal:8x4", "--only", "norms", "--nulls", "0", "--out", place),
            ("analyze", "alibi:4x2", "--nulls", "0", "--out", place),
            ("compare", "sinusoidal:8x4", "sinusoidal", "--nulls", "0", "--out", place),
        )
    )


def _foreign(rng: random.Random) -> Case:
    """Put files of the user under a bundle's names; they must stay."""
    names = rng.sample(OWN, rng.choice((1, 1, 2, 4)))
    files = {f"paper/{name}": MINE for name in names}
    if rng.random() < 0.3:
        files["paper/analysis.json"] = rng.choice(
            (b"{}", b'{"schema": "posprobe.analysis/1"}', b"[]", b"")
        )
    return Case(f"a folder with {', '.join(names)}", _argv(rng, "paper"), files, expected="error")


def _touched(rng: random.Random) -> Case:
    """Add to a real bundle, or change it; what the user made must stay."""
    kind = rng.choice(
        ("sound", "added", "changed", "top", "folder", "empty folder", "lost", "hidden")
    )
    files: dict[str, bytes] = {}
    special = {}
    if kind == "added":
        files[f"bundle/figures/{rng.choice(('mine.svg', 'fig.pdf', '.DS_Store', 'a b.png'))}"] = (
            MINE
        )
    elif kind == "changed":
        files[f"bundle/{rng.choice(('figures/norms.svg', 'figures/norms.png'))}"] = MINE
    elif kind == "top":
        files[f"bundle/{rng.choice(('notes.txt', '.git/config', 'paper.tex'))}"] = MINE
    elif kind == "folder":
        files["bundle/figures/mine/a.txt"] = MINE
    elif kind == "empty folder":
        special["bundle/figures/mine"] = "folder"
    elif kind == "lost":
        special[f"bundle/{rng.choice(('report.html', 'arrays.npz', 'figures/norms.png'))}"] = (
            "absent"
        )
    else:
        files["bundle/.hidden"] = MINE
    if kind == "sound":
        files = {}
    # A bundle that lost a part is still posprobe's own.
    must = "accepted" if kind == "sound" else "any" if kind in ("lost", "empty folder") else "error"
    return Case(
        f"a bundle, {kind}",
        _argv(rng, "bundle"),
        files,
        special,
        base="bundle",
        outputs=("bundle",),
        expected=must,  # type: ignore[arg-type]
    )


def _file(rng: random.Random) -> Case:
    """Write a figure or a table over what the user has."""
    kind = rng.choice(("caption", "figure", "table", "folder", "reports"))
    if kind == "caption":
        end = rng.choice(("svg", "png"))
        return Case(
            "the user's own caption",
            ("figure", "norms", "sinusoidal:8x4", "-o", f"fig.{end}"),
            {"fig.caption.txt": MINE},
            expected="error",
        )
    if kind == "folder":
        return Case(
            "a folder in place of the file",
            ("extract", "sinusoidal:8x4", "-o", "out.npy"),
            special={"out.npy": "folder"},
            expected="error",
        )
    if kind == "reports":
        content = build.safetensors({"wpe.weight": build.table(rng, 8, 4)})
        return Case(
            "another model's default folder",
            ("analyze", "b/model", "--only", "norms", "--nulls", "0"),
            {"b/model/model.safetensors": content, "reports/model/analysis.json": MINE},
            expected="error",
        )
    if kind == "figure":
        return Case(
            "an older figure",
            ("figure", "norms", "sinusoidal:8x4", "-o", "fig.svg"),
            {"fig.svg": MINE},
            outputs=("fig.svg", "fig.caption.txt"),
        )
    out = rng.choice(("out.npy", "out.csv", "out.npz", "out.safetensors"))
    return Case(
        "an older table", ("extract", "sinusoidal:8x4", "-o", out), {out: MINE}, outputs=(out,)
    )


def _links(rng: random.Random) -> Case:
    """Put links where posprobe writes; what they lead to must stay."""
    kind = rng.choice(
        ("out", "part", "report", "index", "figures", "parent", "extract", "index part", "caption")
    )
    files = {"precious.txt": MINE, "precious/a.txt": MINE}
    if kind == "out":
        return Case(
            "--out is a link", _argv(rng, "out"), files, {"out": "link precious"}, expected="error"
        )
    if kind == "parent":
        return Case(
            "--out below a link",
            _argv(rng, "out/b"),
            files,
            {"out": "link precious"},
            outputs=("precious/b",),
        )
    if kind == "extract":
        # As `numpy.save` and `cp` do, or instead of the link; never a third file.
        return Case(
            "-o is a link",
            ("extract", "sinusoidal:8x4", "-o", "out.npy"),
            files,
            {"out.npy": "link nowhere.npy"},
            outputs=("out.npy", "nowhere.npy"),
        )
    if kind == "caption":
        return Case(
            "the caption is a link",
            ("figure", "norms", "sinusoidal:8x4", "-o", "fig.svg"),
            files,
            {"fig.caption.txt": "link precious.txt"},
            outputs=("fig.svg", "fig.caption.txt"),
        )
    if kind in ("index", "index part"):
        name = "index.html" if kind == "index" else ".index.html.part"
        return Case(
            f"{name} is a link",
            ("report", "."),
            files,
            {name: "link precious.txt"},
            base="bundle",
            outputs=("index.html",),
        )
    name = {"part": ".report.html.part", "report": "report.html", "figures": "figures"}[kind]
    target = "../precious" if kind == "figures" else "../precious.txt"
    argv = (
        ("report", "bundle") if kind != "figures" and rng.random() < 0.7 else _argv(rng, "bundle")
    )
    return Case(
        f"{name} of a bundle is a link",
        argv,
        files,
        {f"bundle/{name}": f"link {target}"},
        base="bundle",
        outputs=("bundle",),
    )


def _odd(rng: random.Random) -> Case:
    """Name places that are no folder, or that cannot be made."""
    place = rng.choice(
        (
            "file",
            "file/b",
            "/dev/null",
            "/dev/null/x",
            "/proc/x",
            "n" * 246,
            "n" * 255,
            "n" * 256,
            "a/" * 3000 + "b",
            "",
            ".",
            "..",
            "fifo",
            "-x",
            "a/../b",
            "~nouser/x",
            "new/folder",
        )
    )
    fits = ("n" * 246, "n" * 255, "new", "b", "a", "-x", "~nouser", ".")
    return Case(
        f"--out {place[:20]!r}",
        (*_argv(rng, place)[:-2], f"--out={place}"),
        {"file": MINE},
        {"fifo": "fifo"},
        outputs=fits if place != "." else (),
        expected="accepted" if place in ("n" * 246, "n" * 255) else "any",
    )


WARM = (
    ("figure", "norms", "sinusoidal:8x4", "-o", "f.svg"),
    ("compare", "sinusoidal:8x4", "sinusoidal", "--nulls", "0", "--out", "c"),
    ("analyze", "alibi:4x2", "--nulls", "0", "--out", "r"),
)
