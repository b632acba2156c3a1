"""What a page says about each analysis: the numbers, how to read them, what they do not show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Block = Mapping[str, Any]


@dataclass(frozen=True)
class Number:
    """A number of the overview: where it stands in the JSON and what it means."""

    label: str
    key: str
    meaning: str
    form: str = ".3g"


@dataclass(frozen=True)
class Section:
    """An analysis on the page.

    Parameters
    ----------
    key
        Its block in the JSON.
    title
        Heading.
    figures
        Drawings by name, with the text that stands for each: a function of the block.
    shows, reading, limits, source
        What it measures, how to read it, what it does not show, and whose analysis it is.
    numbers
        What the table beside it lists.
    facts
        Sentences with numbers of the block that no table lists.
    """

    key: str
    title: str
    shows: str
    reading: str
    limits: str
    source: str
    figures: Mapping[str, Callable[[Block], str]]
    numbers: tuple[Number, ...]
    facts: Callable[[Block], list[str]] = lambda _: []


def show(value: object, form: str = ".3g") -> str:
    """Format a number for reading; None is undefined, numbers of a list stand around ``form``."""
    if value is None:
        return "undefined"
    if isinstance(value, list):
        return form.join(map(show, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if form == "d" or isinstance(value, int):
        return f"{value:d}"
    if value and abs(value) < 5e-4:
        return f"{value:.1e}" if abs(value) > 1e-12 else "0"
    return f"{value:{form}}"


def lookup(block: Any, key: str) -> Any:
    """Follow a dotted key path; None where it leads nowhere."""
    for part in key.split("."):
        block = block.get(part) if isinstance(block, Mapping) else None
    return block


def reasons(undefined: Iterable[tuple[str, str]]) -> list[str]:
    """Say why numbers are undefined: each reason once, with the numbers it concerns.

    Parameters
    ----------
    undefined
        Numbers and their reasons.
    """
    found: dict[str, dict[str, None]] = {}
    for name, reason in undefined:
        found.setdefault(reason, {})[name.replace("_", " ")] = None
    return [f"{', '.join(names)}: {reason}" for reason, names in found.items()]


def _fact(text: str, *keys: str) -> Callable[[Block], str]:
    return lambda block: text.format(*(show(lookup(block, key)) for key in keys))


def _seams_text(block: Block) -> str:
    seams = ", ".join(f"{first} and {second}" for first, second in block["between"])
    special = ", ".join(str(row["row"]) for row in block["special"])
    return (
        f"{'seams between ' + seams if seams else 'no seam'}, "
        f"{'special rows ' + special if special else 'no special row'}"
    )


def _sample(block: Block) -> list[str]:
    """Say what the positions were laid beside."""
    sample = block["sample"]
    vectors = f"{sample['sampled']} {sample['kind']} vectors of mean norm "
    vectors += f"{show(block['token_norm'])} (standard error {sample['standard_error']:.1%})"
    shape = " × ".join(map(str, sample["shape"]))
    return [
        f"Laid beside {vectors}, from {sample['tensor']}, {shape}.",
        f"{sample['note'][0].upper()}{sample['note'][1:]}.",
    ]


def _coarse(block: Block) -> list[str]:
    """Say of a large table's cosines what the matrices are and what the numbers are."""
    side = block["raw"].get("pooled", 1)
    fact = (
        f"The matrices are means over blocks of {side} × {side} pairs. All numbers are those of "
        "single pairs."
    )
    return [fact] if side > 1 else []


def _leading(block: Block) -> list[str]:
    """Say how many components there are where they are not all."""
    ratios = block["explained_variance_ratio"]
    if block.get("method", "exact") == "exact" or ratios is None:
        return []
    fact = (
        f"Of so large a table the {len(ratios)} leading components are computed, by a randomised "
        "singular value decomposition (Halko, Martinsson & Tropp 2011). Their shares are of the "
        "whole variance."
    )
    return [fact]


SECTIONS: tuple[Section, ...] = (
    Section(
        key="grid",
        title="Patches",
        shows="How similar each patch's position is to every other patch's.",
        reading="One tile per patch, arranged as in the image; in a tile, one cell per patch. "
        "Red is "
        "similar. A bright own cell with a bright row and column means that the table knows rows "
        "and columns. Position vectors of special tokens take no part.",
        limits="A bright own cell alone shows nothing: every vector has cosine 1 with itself.",
        source="Dosovitskiy et al. 2021, figure 7; the two-way decomposition is ours.",
        figures={
            "mosaic": _fact(
                "Mosaic of cosines: mean centred cosine {} to the right neighbour, {} to the one "
                "below, {} elsewhere.",
                "neighbour_right",
                "neighbour_below",
                "elsewhere",
            ),
            "plane_spectrum": _fact(
                "Two-dimensional spectrum: {} of the power lies on the axes.", "axis_power_share"
            ),
        },
        numbers=(
            Number("neighbour to the right", "neighbour_right", "mean centred cosine"),
            Number("neighbour below", "neighbour_below", "mean centred cosine"),
            Number("own row", "own_row", "mean centred cosine with the rest of the row"),
            Number("own column", "own_column", "mean centred cosine with the rest of the column"),
            Number("elsewhere", "elsewhere", "mean centred cosine with other rows and columns"),
            Number("rows", "row_share", "share of variance that the row alone explains"),
            Number("columns", "column_share", "share of variance that the column alone explains"),
            Number("interaction", "interaction_share", "share that neither explains alone"),
            Number("power on the axes", "axis_power_share", "share in waves along one axis only"),
        ),
    ),
    Section(
        key="similarity",
        title="Similarity of positions",
        shows="The cosine of every pair of rows, and how it depends on their distance.",
        reading="Bands along the diagonal mean that similarity depends on the offset; blocks "
        "mean that "
        "it depends on where you are. Left: rows as stored. Right: after subtracting the mean row, "
        "which all positions share and which lifts every raw cosine.",
        limits="Bands alone are no evidence of a sinusoid: a random walk's centred matrix is "
        "banded "
        "too, and reaches a translation invariance of about 0.9. Centring forces the mean cosine "
        "slightly below zero.",
        source="Wang & Chen, EMNLP 2020, figure 1; properties after Wang et al., ICLR 2021.",
        figures={
            "similarity": _fact(
                "Cosine matrices: neighbouring rows {} raw and {} centred, distant rows {} "
                "centred.",
                "raw.neighbour_mean",
                "centered.neighbour_mean",
                "centered.far_mean",
            ),
            "profile": _fact(
                "Mean cosine by offset: {} of its steps up to offset {} fall.",
                "raw.monotone_fraction",
                "window",
            ),
        },
        numbers=(
            Number("neighbours, raw", "raw.neighbour_mean", "mean cosine of neighbouring rows"),
            Number(
                "neighbours, centred", "centered.neighbour_mean", "after subtracting the mean row"
            ),
            Number("far apart, raw", "raw.far_mean", "mean over more than a quarter of the table"),
            Number("far apart, centred", "centered.far_mean", "after subtracting the mean row"),
            Number("minimum, raw", "raw.minimum", "smallest cosine of any pair"),
            Number(
                "translation invariance, raw",
                "raw.translation_invariance",
                "share of variance that the offset explains, off the diagonal",
            ),
            Number(
                "translation invariance, centred",
                "centered.translation_invariance",
                "after subtracting the mean row",
            ),
            Number(
                "monotone fraction",
                "raw.monotone_fraction",
                "share of steps away from a position at which the cosine falls",
            ),
        ),
        facts=_coarse,
    ),
    Section(
        key="pca",
        title="Principal components",
        shows="How many directions the positions use, and how they move along each.",
        reading="Few components with smooth scores mean a low-dimensional curve. Pairs of equal "
        "share "
        "a quarter period apart are circles, the learned analogue of a sine and cosine pair.",
        limits="Sinusoidal scores prove nothing by themselves: the components of any smooth random "
        "series are sinusoids. A few rows at the ends can move the shares a lot; try --rows.",
        source="Chughtai & Lau 2024; Song & Zhong 2023; caution by Antognini & Sohl-Dickstein "
        "2018.",
        figures={
            "variance": _fact(
                "Explained variance: {} components hold 90 % and {} hold 99 %.",
                "components_90",
                "components_99",
            ),
            "components": _fact(
                "Scores of the first components; three hold {} of the variance.", "top3"
            ),
        },
        numbers=(
            Number("first three components", "top3", "share of the variance"),
            Number("stable rank", "stable_rank", "all squared singular values over the largest"),
            Number("participation ratio", "participation_ratio", "effective number of eigenvalues"),
            Number("effective rank", "effective_rank", "exponential of the eigenvalues' entropy"),
            Number("components for 90 %", "components_90", "of the variance", "d"),
            Number("components for 95 %", "components_95", "of the variance", "d"),
            Number("components for 99 %", "components_99", "of the variance", "d"),
        ),
        facts=_leading,
    ),
    Section(
        key="spectrum",
        title="Frequencies",
        shows="At which frequencies the table moves along positions.",
        reading="Left: power summed over dimensions, with the red noise of the same memory; dots "
        "are "
        "lines that it does not explain, labelled with their period. Right: the strongest "
        "frequency "
        "of each dimension, beside the ladder of the sinusoid.",
        limits="A sinusoidal table of this length has many wavelengths longer than the table, so "
        "its "
        "spectrum looks red as well. Frequencies that drift along the table are smeared.",
        source="Yamamoto & Matsuzaki, EMNLP 2023; significance after Torrence & Compo 1998.",
        figures={
            "spectrum": _fact(
                "Power spectrum: 90 % of the power lies below frequency {}.", "edge_frequency"
            )
        },
        numbers=(
            Number("entropy", "entropy", "of the power over frequencies; 1 is white noise"),
            Number("edge frequency", "edge_frequency", "90 % of the power lies below it"),
            Number(
                "dimensions with a line", "dimensions_with_line", "above their own red noise", "d"
            ),
        ),
    ),
    Section(
        key="spectrogram",
        title="Frequencies along the table",
        shows="Whether the frequencies stay the same from the first positions to the last.",
        reading="Power over position and frequency, in overlapping segments. A straight band is "
        "one "
        "frequency throughout; a bent one drifts, and is smeared in the spectrum above.",
        limits="A segment resolves no period longer than a few dozen positions.",
        source="Short-time Fourier transform; drifting ridges were shown by Wennberg & Henter "
        "2021.",
        figures={
            "spectrogram": _fact(
                "Spectrogram in segments of {} positions; drift of the fastest line: {}.",
                "length",
                "drift",
            )
        },
        numbers=(
            Number("segment", "length", "positions", "d"),
            Number("segments", "segments", "overlapping", "d"),
            Number("drift", "drift", "of the fastest line: its 10 to 90 % range over its median"),
        ),
    ),
    Section(
        key="dct",
        title="Slow components of similarity",
        shows="How much of the similarity matrix its slowest cosine components hold.",
        reading="The matrix of centred cosines, transformed along both sides. Power in the first "
        "few cells means that similarity changes slowly from position to position.",
        limits="Any smooth table has a high share, a random walk among them.",
        source="Song & Zhong 2023, figure 2.",
        figures={
            "dct": _fact("Slow corner of the transform: {} of the squared energy.", "share"),
        },
        numbers=(Number("share of the slow corner", "share", "of the squared energy"),),
    ),
    Section(
        key="shift",
        title="The step from one position to the next",
        shows="Whether one linear map takes every position to the next, as in a sinusoid.",
        reading="Each dot is an oscillation of the map, labelled with its period; on the circle it "
        "is undamped. The skill says how well the map, fitted to one half of the table, predicts "
        "the other half: 1 is exact, 0 no better than no change or the mean row.",
        limits="Periods without skill mean nothing: least squares finds slow periods in a random "
        "walk too.",
        source="The translation matrix of Vaswani et al. 2017 (Kernes 2021), fitted as in dynamic "
        "mode decomposition (Schmid 2010).",
        figures={"shift": _fact("Eigenvalues of the shift: skill {}, rank {}.", "skill", "rank")},
        numbers=(
            Number("skill", "skill", "on held-out rows"),
            Number("R²", "r2", "on held-out rows, against the mean row"),
            Number("rank", "rank", "leading components that the map acts on", "d"),
            Number("variance", "variance", "share that those components hold"),
        ),
    ),
    Section(
        key="seams",
        title="Seams and special rows",
        shows="Where neighbouring positions suddenly differ, and which rows are unlike the rest.",
        reading="A dip in the similarity of neighbours is a seam: often the length at which one "
        "phase of training ended. Special rows are often the first, the last, and the one before "
        "a seam.",
        limits="A row without a mark need not be trained.",
        source="Change points on adjacent cosines and norms; ours.",
        figures={"seams": lambda block: f"Cosine of neighbours: {_seams_text(block)}."},
        numbers=(),
    ),
    Section(
        key="sinusoid",
        title="Beside the sinusoid",
        shows="How close the table is to the sinusoid of its shape, and how few waves describe it.",
        reading="Left: share of the variance that 1, 2, 3 … freely chosen frequencies explain, "
        "with "
        "their periods. Right: resemblance to sinusoids of other bases.",
        limits="Smoothness alone gives a high CKA: two independent random walks reach 0.99. "
        "Compare with the null models above.",
        source="CKA: Kornblith et al. 2019, debiased after Song et al. 2012; Procrustes: "
        "Schönemann 1966; the curve is matching pursuit (Mallat & Zhang 1993).",
        figures={
            "sinusoid": _fact(
                "Debiased CKA {} with the sinusoid; {} sinusoids explain 90 % of the variance.",
                "cka",
                "sinusoids_for_90",
            )
        },
        numbers=(
            Number("CKA", "cka", "debiased; 1 is a rotated copy"),
            Number("Procrustes distance", "procrustes", "0 is a rotated copy, 1.41 the most"),
            Number("subspace overlap", "subspace_overlap", "of the leading directions"),
            Number("share on the ladder", "ladder_share", "variance that its waves explain"),
            Number("the same of white noise", "ladder_white_share", "what so many waves explain"),
            Number("sinusoids for 90 %", "sinusoids_for_90", "freely chosen", "d"),
            Number("base", "base", "of the ladder that fits best"),
        ),
    ),
    Section(
        key="probes",
        title="Probes",
        shows="Whether a linear model can read positions and their order from the rows.",
        reading="The published probes draw folds at random, so that each held-out row has its "
        "neighbours in training: they measure interpolation. The sound ones hold out whole "
        "blocks, and positions that no training pair contains.",
        limits="A random walk passes the published probes as well as a sinusoid.",
        source="Wang & Chen, EMNLP 2020, tables 1 and 2; the sound versions are ours.",
        figures={
            "probes": _fact(
                "Probe errors: {} positions as published, {} with blocks held out.",
                "absolute_published.mae",
                "absolute_blocked.mae",
            )
        },
        numbers=(
            Number("absolute, as Wang & Chen", "absolute_published.mae", "mean error in positions"),
            Number("absolute, blocks", "absolute_blocked.mae", "mean error in positions"),
            Number("its chance level", "absolute_blocked.chance", "always answering the mean"),
            Number("order, as Wang & Chen", "order_published.error", "share of pairs put wrongly"),
            Number("order, disjoint", "order_disjoint.error", "share of pairs put wrongly"),
            Number("its chance level", "order_disjoint.chance", "measured"),
        ),
    ),
    Section(
        key="scale",
        title="Scale beside the tokens",
        shows="How long positions are beside the vectors that they are added to.",
        reading="Lengths are in units of the mean token. A position must be small enough not to "
        "drown the token and far enough from the next position to be told from it.",
        limits="Layer normalisation after the sum rescales both alike, so sizes say less than "
        "ratios. Tokens count as equally likely at every position, and what projections make of "
        "either is not looked at.",
        source="The trade-off is described by AI Coffee Break (Positional embeddings in "
        "transformers explained, 2021); the numbers are ours.",
        figures={
            "scale": _fact(
                "Norms of positions beside norms of tokens: a ratio of {} of their means.", "ratio"
            )
        },
        numbers=(
            Number("mean position norm", "position_norm", "in the table's units"),
            Number("mean token norm", "token_norm", "in the same units"),
            Number("ratio", "ratio", "mean position norm over mean token norm"),
            Number("beside long and short tokens", "ratio_band", "95th and 5th percentile", " to "),
            Number("distance of neighbours", "neighbour_distance", "mean, in mean token norms"),
            Number("smallest distance", "smallest_distance", "of any two, in mean token norms"),
            Number("closest", "closest", "the positions so near each other", " and "),
            Number("cosine of the means", "mean_cosine", "mean position with mean token"),
            Number("share of variance", "variance_share", "of position in token plus position"),
        ),
        facts=_sample,
    ),
    Section(
        key="norms",
        title="Norms",
        shows="How long each position's vector is.",
        reading="A flat line means that all positions weigh the same. Rows that stand out are "
        "often the "
        "first and last, or where training sequences ended.",
        limits="A normal norm does not make a row trained: compare its neighbours' similarity.",
        source="Standard practice.",
        figures={"norms": _fact("Row norms: mean {}, from {} to {}.", "mean", "min", "max")},
        numbers=(
            Number("mean", "mean", "in the table's units"),
            Number("minimum", "min", "in the table's units"),
            Number("maximum", "max", "in the table's units"),
            Number("norm of the mean row", "mean_row_norm", "what all positions share"),
        ),
    ),
)

#: The overview at the top of the page.
OVERVIEW: tuple[Number, ...] = (
    Number("neighbour cosine", "similarity.centered.neighbour_mean", "centred"),
    Number("far cosine", "similarity.centered.far_mean", "centred, a quarter of the table apart"),
    Number("translation invariance", "similarity.raw.translation_invariance", "of raw cosines"),
    Number("stable rank", "pca.stable_rank", "directions, weighted by power"),
    Number("components for 90 %", "pca.components_90", "of the variance", "d"),
    Number("edge frequency", "spectrum.edge_frequency", "90 % of the power lies below"),
)


#: The numbers that stand beside the sinusoid and the null models, and what they are called.
VERDICT: tuple[Number, ...] = (
    Number("neighbour cosine, raw", "similarity.raw.neighbour_mean", "neighbouring rows"),
    Number("neighbour cosine", "similarity.centered.neighbour_mean", "neighbouring rows, centred"),
    Number("far cosine", "similarity.centered.far_mean", "a quarter of the table apart, centred"),
    Number(
        "translation invariance",
        "similarity.raw.translation_invariance",
        "share of variance that the offset explains",
    ),
    Number(
        "translation invariance, centred",
        "similarity.centered.translation_invariance",
        "share of variance that the offset explains",
    ),
    Number("monotone fraction", "similarity.raw.monotone_fraction", "falling steps"),
    Number("first three components", "pca.top3", "share of the variance"),
    Number("stable rank", "pca.stable_rank", "directions, weighted by power"),
    Number("participation ratio", "pca.participation_ratio", "effective number of eigenvalues"),
    Number("spectral entropy", "spectrum.entropy", "1 is white noise"),
    Number("edge frequency", "spectrum.edge_frequency", "90 % of the power lies below"),
    Number("shift skill", "shift.skill", "of one linear step, on held-out rows"),
    Number("CKA with the sinusoid", "sinusoid.cka", "debiased"),
    Number("share on the ladder", "sinusoid.ladder_share", "variance that its waves explain"),
    Number("rows", "grid.row_share", "variance that the row alone explains"),
    Number("columns", "grid.column_share", "variance that the column alone explains"),
    Number("interaction", "grid.interaction_share", "variance that neither explains alone"),
    Number("power on the axes", "grid.axis_power_share", "in waves along one axis only"),
)


def _each(document: Block, key: str, form: str = ".3g") -> str:
    """List a number of every table of a comparison, by label."""
    found = ((table["label"], lookup(table, key)) for table in document["tables"])
    return ", ".join(f"{label} {show(value, form)}" for label, value in found)


def _distances_text(document: Block) -> str:
    found = [pair["cka"] for pair in document["pairs"] if pair["cka"] is not None]
    if not found:
        return "Matrices of the pairwise distances; CKA is undefined."
    between = show(sorted({min(found), max(found)}), " to ")
    return f"Matrices of the pairwise distances: CKA {between}; all numbers stand in the table."


#: Texts that stand for a comparison's figures, by name: functions of the document.
COMPARED: Mapping[str, Callable[[Block], str]] = {
    "similarity": lambda document: (
        "Cosine matrices of all tables on one range from -1 to 1; mean centred cosine of "
        f"neighbours: {_each(document, 'similarity.centered.neighbour_mean')}."
    ),
    "curves": lambda document: (
        "Mean centred cosine by offset, and share of power by frequency; 90 % of the power lies "
        f"below frequency: {_each(document, 'spectrum.edge_frequency')}."
    ),
    "variance": lambda document: (
        "Running sum of explained variance; components that hold 90 %: "
        f"{_each(document, 'pca.components_90', 'd')}."
    ),
    "distances": _distances_text,
}
