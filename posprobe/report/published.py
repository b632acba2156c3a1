"""Values that others have published, to stand beside ours with their source.

A number is a model's only where the table is known to be the model's, in one of four ways:

* its stored bytes have a known SHA-256, whatever the file is called;
* it came from the model's repository on the Hub, under one of its ids;
* it is a formula;
* it came from a local folder with the model's name that holds a tensor of the model's name and
  shape. That is the weakest sign, since a fine-tuned copy looks the same, and `Published.matched`
  says so. Where the model's bytes are known in that format and these differ, there is no match.

Nor is a number of other rows the same number: `Published.differs` says where rows differ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from posprobe.analyses.probes_published import PUBLISHED_ROWS
from posprobe.tables import PositionTable

Match: TypeAlias = Literal["bytes", "hub", "formula", "name"]


@dataclass(frozen=True)
class Published:
    """One published value.

    Parameters
    ----------
    model, title
        The model's short and full name.
    key
        Where posprobe's own value stands in ``analysis.json``, as a dotted path.
    quantity
        What it is, in words.
    value, unit
        In posprobe's unit: shares rather than percentages; None for a bare number.
    stated
        As printed in the source.
    tolerance
        By how much a sound repetition may differ: what rounding hides, or for a single unseeded run
        three standard deviations of ours over 100 seeds. None where we have not measured it.
    rows
        First row and one past the last; None where they do not matter.
    takes
        ``"all"``: the table must be cut to these rows. ``"first"``: the analysis cuts it itself.
    stored
        Whether rows count as stored, those that are no positions included.
    citation, where, url
        The source, and where in it.
    evidence
        How the value was read: first hand or not, and what limits it.
    matched
        How the table at hand was recognised; None in `PUBLISHED`.
    differs
        Why ours is not the same quantity, or empty.
    """

    model: str
    title: str
    key: str
    quantity: str
    value: float
    unit: str | None
    stated: str
    tolerance: float | None
    rows: tuple[int, int] | None
    takes: Literal["all", "first"]
    stored: bool
    citation: str
    where: str
    url: str
    evidence: str
    matched: Match | None = None
    differs: str = ""

    def compared(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value with posprobe's own from an ``analysis.json``, ready for JSON.

        ``ours`` is None where the document does not hold the quantity.
        """
        ours = _lookup(document, self.key)
        return asdict(self) | {
            "rows": list(self.rows) if self.rows else None,
            "ours": ours if isinstance(ours, int | float) else None,
        }


@dataclass(frozen=True)
class _Model:
    """What a model's table is known by: its place in a checkpoint, or a formula."""

    title: str
    hub: tuple[str, ...] = ()
    tensor: str = ""
    shape: tuple[int, int] = (0, 0)
    sha256: tuple[str, ...] = ()  # of the tensor in single precision
    formula: str = ""  # all lengths of it


_MODELS = {
    "gpt2": _Model(
        "GPT-2 small", ("gpt2", "openai-community/gpt2"), "wpe.weight", (1024, 768),
        ("29c69587e2af826b7c159c38620a32e549a925e6d9a0dc37cb563f377f5be772",),
    ),
    "bert-base-uncased": _Model(
        "BERT base, uncased", ("bert-base-uncased", "google-bert/bert-base-uncased"),
        "position_embeddings.weight", (512, 768),
    ),
    "roberta-base": _Model(
        "RoBERTa base", ("roberta-base", "FacebookAI/roberta-base"),
        "position_embeddings.weight", (514, 768),
    ),
    "sinusoid": _Model("sinusoid, width 768", formula=r"sinusoidal:\d+x768"),
    "random-walk": _Model("random walk, the limit of long walks in many dimensions"),
}  # fmt: skip

#: Citation, address and how the source was read.
_WANG_CHEN = (
    "Wang & Chen 2020, What Do Position Embeddings Learn?, EMNLP",
    "https://arxiv.org/abs/2010.04903",
    (
        "value from a secondary source, a public note that copies tables 1 and 2; the method read "
        "in the released code. One run each, no seed fixed"
    ),
)
_SONG_ZHONG = (
    (
        "Song & Zhong 2023, Uncovering hidden geometry in Transformers via disentangling position "
        "and context"
    ),
    "https://arxiv.org/abs/2310.04861",
    "read in the outputs of the released notebook",
)
_CHUGHTAI_LAU = (
    "Chughtai & Lau 2024, Understanding positional features in layer 0 SAEs",
    "https://www.lesswrong.com/posts/ctGeJGHg9pbc8memF/understanding-positional-features-in-layer-0-saes",
    "read in the post",
)
_ANTOGNINI = (
    (
        "Antognini & Sohl-Dickstein 2018, PCA of high dimensional random walks with comparison to "
        "neural network training, NeurIPS"
    ),
    "https://arxiv.org/abs/1806.08805",
    (
        "read in the author's public notebook, which measures 0.6085 for 1,000 steps in 10,000 "
        "dimensions"
    ),
)

#: Key, quantity and unit.
_ABSOLUTE = (
    "probes.absolute_published.mae", "mean absolute error of the position regression", "positions",
)  # fmt: skip
_ORDER = (
    "probes.order_published.error", "error of the order classification", "share of pairs",
)  # fmt: skip
_STABLE_RANK = ("pca.stable_rank", "stable rank of the centred rows", None)
_TOP3 = ("pca.top3", "variance explained by the first three components", "share of variance")
_FIRST = (
    "pca.explained_variance_ratio.0", "variance explained by the first component",
    "share of variance",
)  # fmt: skip


def _value(
    model: str,
    measured: tuple[str, str, str | None],
    stated: str,
    value: float,
    tolerance: float | None,
    rows: tuple[int, int] | None,
    source: tuple[str, str, str],
    where: str,
    note: str = "",
    *,
    stored: bool = False,
) -> Published:
    (key, quantity, unit), (citation, url, evidence) = measured, source
    return Published(
        model, _MODELS[model].title, key, quantity, value, unit, stated, tolerance, rows,
        "first" if key.startswith("probes.") else "all", stored, citation, where, url,
        "; ".join(filter(None, (evidence, note))),
    )  # fmt: skip


#: Every published value.
PUBLISHED = (
    _value("bert-base-uncased", _ABSOLUTE, "34.14", 34.14, None, (0, 512), _WANG_CHEN, "table 1"),
    _value("roberta-base", _ABSOLUTE, "6.06", 6.06, None, (0, 514), _WANG_CHEN, "table 1",
           "all 514 stored rows, both padding rows included", stored=True),
    _value("gpt2", _ABSOLUTE, "1.03", 1.03, 0.18, (0, 512), _WANG_CHEN, "table 1"),
    _value("sinusoid", _ABSOLUTE, "0.0", 0.0, 0.0, (0, 512), _WANG_CHEN, "table 1"),
    _value("bert-base-uncased", _ORDER, "19.72 %", 0.1972, None, (0, 512), _WANG_CHEN, "table 2"),
    _value("roberta-base", _ORDER, "7.23 %", 0.0723, None, (0, 512), _WANG_CHEN, "table 2",
           "stored rows 0 to 511: both padding rows in, the last two positions out", stored=True),
    _value("gpt2", _ORDER, "1.56 %", 0.0156, 0.019, (0, 512), _WANG_CHEN, "table 2"),
    _value("sinusoid", _ORDER, "5.08 %", 0.0508, 0.032, (0, 512), _WANG_CHEN, "table 2"),
    _value("gpt2", _STABLE_RANK, "2.05", 2.05, 0.01, (1, 512), _SONG_ZHONG,
           "released notebook, layer 0",
           "measured on hidden states of WikiText; before the first layer their mean over contexts "
           "is the table plus what tokens have in common at each position"),
    _value("gpt2", _TOP3, "95 %", 0.95, 0.01, (1, 128), _CHUGHTAI_LAU, "figure 1"),
    _value("random-walk", _FIRST, "6/π² = 0.6079", 6 / math.pi**2, 0.05, None, _ANTOGNINI,
           "author's notebook",
           "a limit: walks of a few hundred steps in a few hundred dimensions scatter around it"),
)  # fmt: skip


def published_for(table: PositionTable) -> tuple[Published, ...]:
    """Return the published values of the model that a table belongs to.

    Returns
    -------
    tuple
        With `Published.matched` and `Published.differs` filled in; empty for any other table.
    """
    matches = {name: _match(model, table) for name, model in _MODELS.items()}
    return tuple(
        replace(value, matched=matches[value.model], differs=_differs(value, table))
        for value in PUBLISHED
        if matches[value.model]
    )


def _match(model: _Model, table: PositionTable) -> Match | None:
    source = table.source
    if table.family == "formula" or not model.hub:
        follows = model.formula and re.fullmatch(model.formula, source.resolved)
        return "formula" if follows and table.family == "formula" else None
    if source.sha256 in model.sha256:
        return "bytes"
    if not (source.tensor or "").endswith(model.tensor) or source.shape != model.shape:
        return None
    if source.revision is not None:  # only what was read from the Hub has a commit
        return "hub" if source.resolved in model.hub else None
    known = model.sha256 and source.dtype == "F32" and source.sha256 is not None
    called = PurePath(source.resolved).name in {hub.rpartition("/")[2] for hub in model.hub}
    return "name" if called and not known else None


def _differs(value: Published, table: PositionTable) -> str:
    if value.rows is None:
        return ""
    if value.stored and table.dropped:
        return (
            f"published with all stored rows, of which {len(table.dropped)} are no positions "
            "and are left out here"
        )
    first, stop = table.rows
    if value.takes == "first":
        stop = min(stop, first + PUBLISHED_ROWS)
    if (first, stop) == value.rows:
        return ""
    return f"published for rows {value.rows[0]} to {value.rows[1] - 1}, here {first} to {stop - 1}"


def _lookup(document: Mapping[str, Any], key: str) -> Any:
    found: Any = document
    for part in key.split("."):
        if isinstance(found, Mapping):
            found = found.get(part)
        elif isinstance(found, list) and part.isdigit() and int(part) < len(found):
            found = found[int(part)]
        else:
            return None
    return found
