"""The documents that bundles hold as ``analysis.json``, as types; their schemas are made from them.

Blocks of measurements stand with the measurements: the document of a table, and of a model, has one
key for each of them. What an undefined number leaves is None, with a reason in ``undefined``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict

from posprobe.analyses.models.rotary_use import HeadMatch
from posprobe.blocks import (
    BandBlock,
    EnvironmentBlock,
    LinearBiasBlock,
    PairBlock,
    RelativeBlock,
    RotaryBlock,
    TableBlock,
)
from posprobe.layouts import LayoutBlock
from posprobe.number_types import (
    PAIR_LIMITS,
    Count,
    Natural,
    NonNegative,
    Reasons,
    Share,
    Text,
    limits,
)
from posprobe.report.document import FindingBlock, SharedVerdictBlock
from posprobe.sources import Source
from posprobe.studies.published import PublishedBlock

#: Pearson's correlation, and what has its range; rounding may leave it just outside.
Correlation: TypeAlias = Annotated[float, limits(minimum=-1.000001, maximum=1.000001)]


#: Headline numbers of a table, by their key path in posprobe.analysis/2; null where undefined.
Numbers: TypeAlias = dict[str, float | None]


class HeadlineNumber(TypedDict):
    """A number of the table and of the sinusoid, and a band for each null model by its name."""

    value: float | None
    sinusoid: float | None
    __extra_items__: NotRequired[
        Annotated[
            BandBlock | None, "Null where the number is undefined for the surrogates."
        ]
    ]


class NullsBlock(TypedDict):
    """Headline numbers with those of the sinusoid and of the null models."""

    draws: Count
    seed: int
    models: Annotated[dict[str, str], "By name, what each null model keeps of the table."]
    numbers: Annotated[dict[str, HeadlineNumber], "By key path in this document."]


class CorrectionBlock(TypedDict):
    """An answer before it was corrected."""

    by: Annotated[Text, "The question whose answer corrects it, or what else does."]
    was: Literal["yes", "no", "cannot tell"]
    reason: Text


class AnswerBlock(TypedDict):
    """One question and its answer."""

    question: Text
    answer: Literal["yes", "no", "cannot tell"]
    reason: Annotated[Text, "Which branch of the question's rule it is."]
    sentence: Text
    value: Annotated[
        Any, "What the answer names: periods, rows, turns, a length, a formula."
    ]
    tested: Annotated[
        float | None, "The number that was tested, in the unit of the interval."
    ]
    null: Annotated[
        float | None, "What the nearest baseline has in place of the number: median."
    ]
    interval: Annotated[
        list[float] | None, "5 and 95 % of the baseline's draws.", PAIR_LIMITS
    ]
    p: Annotated[
        float | None, "Evidence for a yes: rank p-value, the largest over the baselines."
    ]
    least: Annotated[float | None, "The least p-value that so many draws allow."]
    baseline: Annotated[str | None, "Name of the nearest baseline."]
    draws: Annotated[Natural | None, "How many were drawn of each."]
    facts: Annotated[dict[str, Any] | None, "Every number that the sentence names."]
    keys: Annotated[list[str], "Key paths of the numbers behind the answer."]
    change: Annotated[
        CorrectionBlock | None, "What it was before another answer corrected it."
    ]


class PartBlock(TypedDict):
    """Another long stretch between seams."""

    rows: Annotated[list[Count], "First position and one past the last.", PAIR_LIMITS]
    summary: Text


class VerdictBlock(TypedDict):
    """What the table has learned: every question with its answer."""

    summary: Text
    based_on: Annotated[str, "Which positions the answers are about; empty where all."]
    rows: Annotated[
        list[Count],
        "First position and one past the last that was asked about.",
        PAIR_LIMITS,
    ]
    reasons: Annotated[
        list[str], "What ends this stretch on either side, or why it is all rows."
    ]
    replaced: Annotated[
        list[Count],
        "Patches in whose place the answers see the mean of their neighbours.",
    ]
    parts: Annotated[
        list[PartBlock], "Other parts of the table that are summed up by themselves."
    ]
    answers: list[AnswerBlock]


class ToldBlock(TypedDict):
    """What encodings without a table, or a run of a model, amount to: questions with answers."""

    summary: Text
    answers: list[AnswerBlock]


# A table.


class AnalysisDocument(TypedDict):
    """The analysis of a table. Each measurement adds its block under its name."""

    schema: Literal["posprobe.analysis/2"]
    table: TableBlock
    environment: EnvironmentBlock
    verdict: NotRequired[
        Annotated[VerdictBlock, "Absent where single measurements were chosen."]
    ]
    nulls: NullsBlock
    findings: list[FindingBlock]


class SchemesDocument(TypedDict):
    """The analysis of the encodings of a checkpoint that has no table."""

    schema: Literal["posprobe.analysis/2"]
    name: Annotated[str, "Of the checkpoint."]
    schemes: Annotated[
        list[RelativeBlock | RotaryBlock | LinearBiasBlock], limits(minItems=1)
    ]
    environment: EnvironmentBlock
    verdict: NotRequired[ToldBlock]
    findings: list[FindingBlock]


# Tables side by side.


class ComparedTable(TypedDict):
    """One of the tables. Each measurement adds its block under its name."""

    label: Annotated[str, "The table's name, numbered where several have the same."]
    positions_before: NotRequired[
        Annotated[
            int,
            "In bundles of 0.1.0 alone, which cut tables to the common length: positions before.",
            limits(minimum=2),
        ]
    ]
    published: list[PublishedBlock]
    table: TableBlock
    environment: EnvironmentBlock
    verdict: NotRequired[Annotated[VerdictBlock, "Absent from bundles of 0.1.0."]]
    nulls: NullsBlock
    findings: list[FindingBlock]


class ComparisonDocument(TypedDict):
    """A comparison of tables."""

    schema: Literal["posprobe.comparison/2"]
    length: Annotated[
        int,
        "Positions of the shortest table. Distances of sequences are taken over the first so many "
        "as the shortest sequence has.",
        limits(minimum=2),
    ]
    tables: Annotated[list[ComparedTable], limits(minItems=2)]
    pairs: Annotated[list[PairBlock], "Every pair of tables, once.", limits(minItems=1)]
    verdict: NotRequired[Annotated[SharedVerdictBlock, "Absent from bundles of 0.1.0."]]
    environment: EnvironmentBlock


# Encodings of any scheme side by side.


class RunBlock(TypedDict):
    """What decides where the heads of a model look, and what they were measured on."""

    distance: Annotated[float, "Share of logits, mean over heads."]
    key: Annotated[float, "Share of the place of the key."]
    other: Annotated[float, "Share of other position."]
    content: Annotated[float, "Share of content: the four add up to 1."]
    moved: Annotated[Share, "Attention that moves without position, mean over heads."]
    most: Annotated[Count, "Heads that position decides by more than half."]
    heads: Natural
    contexts: Natural
    tokens: Annotated[Natural, "Of each context."]
    kind: Annotated[str, "Kind of the contexts, in words."]


class RecordBlock(TypedDict):
    """An encoding and the numbers of its curve over distance."""

    label: Annotated[str, "The name, numbered where several have the same."]
    name: str
    family: str | None
    scheme: Annotated[
        Literal["learned", "fixed", "relative", "rotary", "alibi", "measured"],
        "measured: the mean logits of a saved run.",
    ]
    quantity: Annotated[
        Literal["cosine", "bias", "rotation", "logit"], "What the kernel holds."
    ]
    head_count: Annotated[Natural, "Heads that the curve is the mean of."]
    causal: Annotated[bool, "Whether the curve is that of earlier keys alone."]
    positions: Annotated[
        Natural | None, "Positions that the encoding itself has or promises."
    ]
    half_width: float | None
    monotone_fraction: Share | None
    asymmetry: Share | None
    translation_invariance: Annotated[
        Share | None,
        "Share of the kernel's variance off the diagonal that the offset explains; 1 for all but "
        "tables, null for runs.",
    ]
    undefined: Reasons
    notes: list[str]
    run: NotRequired[Annotated[RunBlock, "Of a saved run."]]
    source: Source


class KernelPairBlock(TypedDict):
    """How alike two encodings are."""

    records: Annotated[list[str], "Labels.", PAIR_LIMITS]
    correlation: Annotated[
        Correlation | None, "Pearson's, of the curves over distance, without distance 0."
    ]
    alignment: Annotated[Correlation | None, "Centred kernel alignment."]
    heads: NotRequired[Annotated[HeadMatch, "Of two runs."]]
    undefined: Reasons


class WalkBlock(TypedDict):
    """What two independent random walks over distance reach: 95 % quantiles of the magnitudes."""

    draws: Natural
    seed: Count
    correlation: Share
    alignment: Share


class KernelsDocument(TypedDict):
    """A comparison of encodings of any scheme."""

    schema: Literal["posprobe.kernels/3"]
    length: Annotated[int, "Positions at which all kernels are taken.", limits(minimum=3)]
    layout: LayoutBlock
    records: Annotated[list[RecordBlock], limits(minItems=2)]
    pairs: Annotated[
        list[KernelPairBlock], "Every pair of records, once.", limits(minItems=1)
    ]
    walk: Annotated[WalkBlock | None, "Null on a grid."]
    verdict: NotRequired[Annotated[SharedVerdictBlock, "Absent from bundles of 0.1.0."]]
    environment: EnvironmentBlock


# A run of a model.

ModelBlock = TypedDict(
    "ModelBlock",
    {
        "class": str, "parameters": Count, "dtype": str, "device": str,
        "missing_weights": NotRequired[Annotated[list[str], "Not in the checkpoint: random."]],
        "unused_weights": NotRequired[Annotated[list[str], "In the checkpoint alone."]],
    },
)  # fmt: skip


class ContextsBlock(TypedDict):
    """What the model was run on: tokens, or images."""

    kind: Annotated[str, "In words."]
    random: NotRequired[Annotated[bool, "Absent from bundles of 0.1.0."]]
    length: NotRequired[Annotated[Natural, "Tokens of each."]]
    shape: NotRequired[
        Annotated[
            list[Natural],
            "Channels, height and width of an image.",
            limits(minItems=3, maxItems=3),
        ]
    ]
    seed: Annotated[int | None, "Null where nothing was drawn."]
    used: Annotated[
        Count, "How many contexts means are over; 0 where nothing was run on them."
    ]


class BaselinesBlock(TypedDict):
    """A layer's numbers for the sinusoid and for random walks of the same shape."""

    sinusoid: Numbers
    walk: dict[str, BandBlock | None]
    draws: Count
    seed: int


class ForwardDocument(TypedDict):
    """A run of a model. Each measurement adds its block under its name, null where not measured."""

    schema: Literal["posprobe.forward/3"]
    name: Annotated[str, "The reference as typed."]
    model: ModelBlock
    contexts: ContextsBlock
    beside: Annotated[BaselinesBlock | None, "Null without hidden states."]
    missing: Annotated[
        dict[str, str], "By name, why something that was asked for was not measured."
    ]
    notes: list[Text]
    environment: EnvironmentBlock
    verdict: NotRequired[ToldBlock]
    findings: list[FindingBlock]


# A sweep: `sweep.json`.


class SweepOptionsBlock(TypedDict):
    """What decides the numbers."""

    only: Annotated[
        list[str] | None, "Names of analyses; null stands for all that apply."
    ]
    nulls: Annotated[Count, "Draws of each null model."]
    rows: Annotated[
        list[int | None] | None, "First position and one past the last.", PAIR_LIMITS
    ]
    revision: str | None
    bundles: bool


class EngineBlock(TypedDict):
    """Where tasks were run."""

    name: Literal["processes", "threads", "dask"]
    jobs: Natural
    scheduler: str | None
    requests: Annotated[Natural, "To a hub at once, by all workers."]


class SweepRunBlock(TypedDict):
    """What the last run did."""

    references: Count
    repeated: Annotated[Count, "Named more than once."]
    computed: Count
    recorded: Annotated[Count, "Known from an earlier run."]
    failed: Count
    seconds: NonNegative


class SweepCountsBlock(TypedDict):
    """What the files beside it hold."""

    references: Count
    rows: Count
    failures: Count


class SweepDocument(TypedDict):
    """Many references; until the first run is finished without the last three."""

    schema: Literal["posprobe.sweep/1"]
    finished: bool
    options: SweepOptionsBlock
    engine: EngineBlock
    environment: EnvironmentBlock
    run: NotRequired[SweepRunBlock]
    counts: NotRequired[SweepCountsBlock]
    written: NotRequired[
        Annotated[dict[str, str], "SHA-256 of what people open, by file name."]
    ]


class ComparedFinding(TypedDict):
    """One thing that was compared, and what B is to A in it."""

    what: Annotated[Text, "What was compared."]
    cause: Annotated[Text, "The relation by its name in posprobe.relations.RULES."]
    a: Annotated[Any, "What A has, where one value says it."]
    b: Annotated[Any, "What B has."]
    value: Annotated[float | None, "Held against the tolerance, or what names the cause."]
    tolerance: NonNegative
    first_distance: Annotated[
        float | None,
        "Where it matters: of ladders the distance from which some pair is 0.1 rad off.",
    ]
    rotation: Annotated[
        float | None,
        "Of ladders: largest difference of the mean rotation within the context.",
    ]
    more: Annotated[dict[str, Any], "Further numbers of the sentence."]
    part: Annotated[str, "The encoding that it is about, where there are several."]
    sentence: Text


class NotComparedBlock(TypedDict):
    """What could not be compared."""

    what: Text
    reason: Text


class ProjectionBlock(TypedDict):
    """What one projection of one layer of B is to that of A."""

    layer: Count
    side: Literal["queries", "keys"]
    relation: Annotated[Text, "The relation by its name in posprobe.relations.RULES."]
    order: Annotated[str | None, "Where its rows went; null for unrelated weights."]
    heads: Annotated[
        Natural | None, "Number of heads that the order other_heads supposes."
    ]
    distance: Annotated[
        NonNegative | None, "Relative distance once the rows are put back."
    ]
    read: Annotated[Literal["all", "first head", "rows"], "What was read of the layer."]


class CheckDocument(TypedDict):
    """Whether two copies of a model encode position alike, and what that rests on."""

    schema: Literal["posprobe.check/1"]
    a: Text
    b: Text
    alike: Annotated[bool | None, "Null where it cannot be told."]
    context: Annotated[Natural | None, "The shorter context of both, in positions."]
    causes: Annotated[list[ComparedFinding], "What differs, the most telling first."]
    compared: Annotated[list[ComparedFinding], "What is alike."]
    not_compared: list[NotComparedBlock]
    projections: NotRequired[
        Annotated[list[ProjectionBlock], "Queries and keys of each layer that was read."]
    ]
    environment: EnvironmentBlock
