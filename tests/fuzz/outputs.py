"""Places to write to: folders and files of the user, links, devices, and damaged bundles.

Whatever is not posprobe's own stays as it is; after an error everything does.
"""

from __future__ import annotations

import random
from typing import Any

from fuzz import build
from fuzz.case import Case

#: Names that a bundle uses as well.
OWN_FILES = (
    "figures/mine.svg", "figures/norms.svg", "report.html", "analysis.json", "arrays.npz",
    ".report.html.part", "analysis.json.bak", "figures.zip",
)  # fmt: skip
USER_CONTENT = b"written by the user\n"
FIGURE = ("figure", "norms", "sinusoidal:8x4", "-o")
EXTRACT = ("extract", "sinusoidal:8x4", "-o")


def _argv(rng: random.Random, place: str) -> tuple[str, ...]:
    return rng.choice(
        (
            (
                "analyze",
                "sinusoidal:8x4",
                "--only",
                "norms",
                "--nulls",
                "0",
                "--out",
                place,
            ),
            ("analyze", "alibi:4x2", "--nulls", "0", "--out", place),
            ("compare", "sinusoidal:8x4", "sinusoidal", "--nulls", "0", "--out", place),
        )
    )


def _foreign(rng: random.Random) -> Case:
    """Put files of the user under a bundle's names; they must stay."""
    names = rng.sample(OWN_FILES, rng.choice((1, 1, 2, 4)))
    files = {f"paper/{name}": USER_CONTENT for name in names}
    if rng.random() < 0.3:
        files["paper/analysis.json"] = rng.choice(
            (b"{}", b'{"schema": "posprobe.analysis/1"}', b"[]", b"")
        )
    return Case(
        f"a folder with {', '.join(names)}", _argv(rng, "paper"), files, expected="error"
    )


def _touched(rng: random.Random) -> Case:
    """Add to a real bundle, or change it; what the user made must stay."""
    added_files = ("figures/mine.svg", "figures/fig.pdf", "figures/.DS_Store", "figures/a b.png",
             "figures/norms.svg", "figures/norms.png", "notes.txt", ".git/config", "paper.tex",
             "figures/mine/a.txt", ".hidden")  # fmt: skip
    lost_file = rng.choice(("report.html", "arrays.npz", "figures/norms.png"))
    files: dict[str, bytes] = {}
    special = {}
    kind = rng.choice(("sound", "added", "added", "added", "empty folder", "lost"))
    if kind == "added":
        files[f"bundle/{rng.choice(added_files)}"] = USER_CONTENT
    elif kind == "empty folder":
        special["bundle/figures/mine"] = "folder"
    elif kind == "lost":
        special[f"bundle/{lost_file}"] = "absent"
    # A bundle that lost a part is still posprobe's own.
    must: dict[str, Any] = {"sound": "accepted", "added": "error"}
    return Case(
        f"a bundle, {kind}", _argv(rng, "bundle"), files, special, base="bundle",
        outputs=("bundle",), expected=must.get(kind, "any"),
    )  # fmt: skip


def _links(rng: random.Random) -> Case:
    """Put links where posprobe writes; what they lead to must stay."""
    part, target = rng.choice(
        (
            (".report.html.part", "../precious.txt"),
            ("report.html", "../precious.txt"),
            ("figures", "../precious"),
        )
    )
    next_part = ("report", "bundle") if part != "figures" and rng.random() < 0.7 else None
    argv, link, link_target, outputs = rng.choice(
        (
            (_argv(rng, "out"), "out", "precious", ()),
            (_argv(rng, "out/b"), "out", "precious", ("precious/b",)),
            # As `numpy.save` and `cp` do, or instead of the link; never a third file.
            ((*EXTRACT, "out.npy"), "out.npy", "nowhere.npy", ("out.npy", "nowhere.npy")),
            (
                (*FIGURE, "fig.svg"),
                "fig.caption.txt",
                "precious.txt",
                ("fig.svg", "fig.caption.txt"),
            ),
            (next_part or _argv(rng, "bundle"), f"bundle/{part}", target, ("bundle",)),
        )
    )
    return Case(
        f"{link} is a link", argv, {"precious.txt": USER_CONTENT, "precious/a.txt": USER_CONTENT},
        {link: f"link {link_target}"}, base="bundle", outputs=outputs,
        expected="any" if outputs else "error",
    )  # fmt: skip


def _odd(rng: random.Random) -> Case:
    """Name places that are no folder, or that cannot be made."""
    long_names = ("n" * 246, "n" * 255)
    place = rng.choice(
        (*long_names, "file", "file/b", "/dev/null", "/dev/null/x", "/proc/x", "n" * 256,
         "a/" * 3000 + "b", "", ".", "..", "fifo", "-x", "a/../b", "~nouser/x", "new/folder")
    )  # fmt: skip
    return Case(
        f"--out {place[:20]!r}", (*_argv(rng, place)[:-2], f"--out={place}"),
        {"file": USER_CONTENT},
        {"fifo": "fifo"}, expected="accepted" if place in long_names else "any",
        outputs=(*long_names, "new", "b", "a", "-x", "~nouser", ".") if place != "." else (),
    )  # fmt: skip


make = build.one_of((5, _foreign), (3, _touched), (2, _links), (2, _odd))
WARM = (
    (*FIGURE, "f.svg"),
    ("compare", "sinusoidal:8x4", "sinusoidal", "--nulls", "0", "--out", "c"),
    ("analyze", "alibi:4x2", "--nulls", "0", "--out", "r"),
)
