"""Options: every command with values that are wrong, huge, empty, foreign, or contradict."""

from __future__ import annotations

import random

from fuzz import build
from fuzz.arrays import saved
from fuzz.case import Case

REFS = (
    "sinusoidal:16x8", "sample:digits-vit", "sincos2d:4x4x8", "rotary:32x16", "alibi:8x4",
    "t5:16x8", "sinusoidal", "sinusoidal:0x8", "sinusoidal:16x0", "sinusoidal:-1x8",
    "sinusoidal:16", "sinusoidal:16x8x2", "sinusoidal:999999999999x8", "sinusoidal:16x8,base=nan",
    "sinusoidal:16x8,base=1e400", "sinusoidal:16x8,base=-1", "sinusoidal:16x8,foo=1",
    "sinusoidal:16x8,,", "t5:64x32,max=999999999999", "t5:1x1", "rotary:32x16,base=0",
    "rotary:32x17", "rotary:8x999999999", "alibi:8x0", "alibi:8x999999999", "alibi:999999999x2",
    "sincos2d:1000000x1000000x8", "sample:", "sample:nope", "sample:digits-vit#nope",
    "sample:digits-vit@main", "t.npy", "t.npy#t", "t.npy@main", "nope.npy", "", " ", "#", "@", "a@",
    "a#", "~nouser/x", "~", ".", "/", "..", "me--model", "a/b/c", "-", "--", "t.npy#", "x" * 300,
    "a/" + "b" * 300, "http://x/y", "file:///etc/passwd", "\ud83d", "1" * 5000,
    "sinusoidal:" + "9" * 5000 + "x8", "sinusoidal:\u0661\u0666x\u0668", "t.npy\n", "/dev/zero",
    "/dev/stdin", "/proc/self/mem",
)  # fmt: skip
NUMBERS = (
    "0", "1", "-1", "2", "1000000", "999999999999", "1e3", "nan", "", " ", "٣", "9" * 5000, "0x10",
    "1_000", "+1", "1.0", "-0", "True", "None", "\x1b[2J",
)  # fmt: skip
#: For each option, values of every kind.
VALUES: dict[str, tuple[str, ...]] = {
    "--rows": (
        "0:8", "1:", ":8", ":", "8:0", "3:4", "-4:", "0:999999999999999999", "a:b", "0:8:2", "1",
        "", "0.0:1", "\u0660:\u0668", "0:" + "9" * 400, "--", "0:8\n",
    ),
    "--only": (
        "norms", "pca,norms", "all", "all,foo", "foo", "", ",", "norms,", "norms,norms", " norms ",
        "NORMS", "\x1b[2J", "norms;pca", "x" * 5000, "winding", "grid", "heads", "states",
    ),
    "--nulls": NUMBERS,
    "--seed": NUMBERS,
    "--device": ("cpu", "auto", "cuda", "mps", "tpu", "", "cuda:0", "CPU"),
    "--tensor": ("t", "nope", "", "values", "\x1b[31m", "../x", "x" * 5000),
    "--grid": (
        "4x4", "2x8", "0x0", "4x5", "-4x-4", "4", "4x4x1", "9999999x9999999", "", "٤x٤", "4 x 4",
    ),
    "--revision": ("main", "", "x" * 500, "\x1b[2J", "../..", "-", "refs/pr/1"),
    "--venue": ("acl", "web", "nope", "", "\x1b[2J"),
    "--span": ("column", "page", "nope", ""),
}  # fmt: skip
KINDS = (
    "norms", "similarity", "profile", "nulls", "heads", "comparison", "nope", "", "variance",
    "\x1b[2J",
)  # fmt: skip
TAKES = {
    "analyze": ("--rows", "--only", "--nulls", "--seed", "--device", "--tensor", "--grid",
                "--revision"),
    "compare": ("--rows", "--nulls", "--seed", "--device"),
    "inspect": ("--revision",),
    "extract": ("--rows", "--tensor", "--grid", "--revision"),
    "figure": ("--rows", "--nulls", "--seed", "--device", "--tensor", "--grid", "--venue",
               "--span"),
    "report": (), "samples": (), "families": (),
}  # fmt: skip
FILES = (
    "out.npy", "out.csv", "out.npz", "out.safetensors", "out.txt", "out", "no/such/out.npy", "",
    ".", "/", "/dev/full", "t.npy", "o" * 246 + ".npy", "o" * 300 + ".npy", "-", "out\x1b[2J.npy",
)  # fmt: skip
FIGURES = (
    "out.svg", "out.png", "out.pdf", "out.txt", "out", "/dev/full", "out\x1b[2J.svg",
    "o" * 246 + ".svg",
)  # fmt: skip
#: What a command that succeeds may write.
OUTPUTS = (
    "bundle", "no", "index.html", "reports", *FILES[:6], *FIGURES[:3], "-", "t.npy",
    *(f"{name}{end}" for name in ("out", "out\x1b[2J", "o" * 246) for end in (
        ".npy", ".svg", ".caption.txt")),
)  # fmt: skip
#: What cannot mean anything, whatever the rest is.
REFUSED = {
    ("--only", "all,foo"), ("--only", "foo"), ("--nulls", "-1"), ("--seed", "-1"),
    ("--nulls", "nan"), ("--rows", "a:b"), ("--rows", "1"), ("--grid", "4x5"), ("--device", "tpu"),
    ("--only", ""), ("--nulls", "999999999999"), ("--venue", "nope"), ("--grid", "0x0"),
    ("--only", ","),
}  # fmt: skip


def make(rng: random.Random) -> Case:
    """Make one command line."""
    (command,) = rng.choices(list(TAKES), (6, 3, 3, 5, 3, 1, 1, 1))
    words: list[str] = [command]
    refs = [rng.choice(REFS[:6]) if rng.random() < 0.6 else rng.choice(REFS)]
    if command == "compare" or (command == "figure" and rng.random() < 0.3):
        refs.append(rng.choice(REFS[:7]))
    if command == "figure":
        words.append(rng.choice(KINDS))
    if command == "report":
        refs = [
            rng.choice(("bundle", "nope", "", ".", "/", "t.npy", "~nouser/x", "x" * 300))
        ]
    if command not in ("samples", "families"):
        words += refs
    picked = [
        (name, rng.choice(VALUES[name])) for name in TAKES[command] if rng.random() < 0.25
    ]
    words += [part for pair in picked for part in pair]
    names = {name for name, _ in picked}
    if command in ("analyze", "compare"):
        words += ["--out", "bundle"]
        if command == "analyze" and "--only" not in names and refs[0] not in REFS[3:6]:
            words += ["--only", "norms"]
        if "--nulls" not in names:
            words += ["--nulls", "0"]
    if command == "extract":
        words += ["-o", rng.choice(FILES) if rng.random() < 0.5 else "out.npy"]
    if command == "figure":
        words += ["-o", rng.choice(FIGURES) if rng.random() < 0.5 else "out.svg"]
        if "--nulls" not in names:
            words += ["--nulls", "1"]
    if rng.random() < 0.1:
        words.append(
            rng.choice(
                ("--json", "--quiet", "--offline", "--nope", "-h", "--version", "")
            )
        )
    if rng.random() < 0.05:
        words.insert(
            rng.randrange(len(words)), rng.choice(("--", "-", "", "\x1b[2J", "--debug=1"))
        )
    is_refused = any(pair in REFUSED for pair in picked) and not {
        "-h",
        "--version",
    } & set(words)
    return Case(
        f"options of {command}",
        tuple(word.encode("utf-8", "replace").decode().replace("\0", "") for word in words),
        {"t.npy": saved(build.table(random.Random(0), 16, 8))},
        outputs=OUTPUTS, expected="error" if is_refused else "any",
    )  # fmt: skip


WARM = (
    ("figure", "norms", "sinusoidal:8x4", "-o", "f.svg"),
    ("compare", "sinusoidal:8x4", "sinusoidal", "--nulls", "0", "--out", "c"),
    ("analyze", "rotary:32x16", "--nulls", "0", "--out", "r"),
)
