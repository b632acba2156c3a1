"""One sentence that sums the answers about a table up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from posprobe.analyses.answer import Answer
from posprobe.analyses.answers import ALL_LINE, BY_DISTANCE
from posprobe.analyses.axis_codes import AxisCodes
from posprobe.analyses.grid_answers import lone_code
from posprobe.analyses.rotation_answers import noun_of, plural, told_periods
from posprobe.analyses.stationary_answer import EQUALLY, WANDERS
from posprobe.analyses.stretch import Stretch
from posprobe.analyses.turning import CHANGES
from posprobe.text import hundredths, listed, percent, rounded, two_figures

#: Share of both codes from which pairs that go round are all that there is to say of them.
HELD = 0.95
#: Mean cosine of neighbours from which they are alike.
ALIKE = 0.2
#: Share of the variance of rotations from which a summary begins with them.
LEADING = 0.1
#: The same of a smooth curve; and the least share that a summary tells of.
MOST, TOLD = 0.5, 0.01
#: Most directions, as a share of all, that a summary calls few.
FEW = 0.25
#: Least share of an axis code's variance of a pair of components that a sentence tells of.
PAIR_SHARE = 0.05
#: Most parts that are named.
MOST_PARTS = 3
#: Words of a table, or of what is left of it without special patches.
EQUAL = "all rows are equal"


def _rotating_codes(answer: Answer, codes: AxisCodes | None) -> str:
    """Say which codes rotate, and how often the pairs of components go round of which they are."""
    rotating = (answer.value or {}).get("rotating", [])
    if not rotating or codes is None:
        return ", and both codes contain rotations"
    both = len(rotating) == 2
    which = "both codes" if both else f"the {rotating[0].removesuffix('s')} code"
    turns = []
    for name in rotating:
        pairs = [pair for pair in codes.axes[name].winding.pairs if pair.share >= PAIR_SHARE]
        if sum(pair.share for pair in pairs) < HELD or not pairs:
            return f", and {which} contain{'' if both else 's'} rotations"
        turns.append(sorted(pair.turns for pair in pairs))
    each = [listed([f"{number:.1f}" for number in own]) for own in turns]
    if both and each[0] != each[1]:
        return (
            ", and both codes go round: pairs of components of the row code "
            f"{each[0]} times, of the column code {each[1]} times"
        )
    pairs_go = "pairs of components go" if len(turns[0]) > 1 else "a pair of components goes"
    return (
        f", and {which} go{'' if both else 'es'} round: in {'each' if both else 'it'}, {pairs_go} "
        f"round {each[0]} times"
    )


def summary(
    answers: Mapping[str, Answer],
    stretch: Stretch,
    start: int,
    others: Sequence[str] = (),
    codes: AxisCodes | None = None,
    copied: str = "",
    zeros: int = 0,
    equal: Sequence[tuple[int, int]] = (),
) -> str:
    """Sum the answers up in one sentence, with what is said of other parts of the table.

    Parameters
    ----------
    answers
        By question.
    stretch
        The rows they are asked of.
    start
        Position of the table's first row.
    others
        What is said of other parts: ``positions A to B: ...``.
    codes
        Of a table of patches.
    copied
        What is said of rows that are copies of others, or nothing.
    zeros
        Number of rows of zeros, which are special.
    equal
        First and last position of each stretch of equal rows.
    """
    says = partial(_says, answers)
    row = "patch" if "rows_and_columns" in answers else "row"
    rows = "patches" if row == "patch" else "rows"
    breaks = []
    pairs = answers["seams"].value if says("seams") else []
    ends = {first for first, _ in equal} | {last + 1 for _, last in equal}
    pairs = [pair for pair in pairs if pair[1] not in ends]  # the equal rows tell of the others
    if pairs:
        noun = "a seam" if len(pairs) == 1 else "seams"
        breaks.append(f"{noun} between {listed([f'{a} and {b}' for a, b in pairs], 4)}")
    if says("special_rows"):
        count = len(answers["special_rows"].value) - zeros
        if count:
            breaks.append(f"{count} special {row if count == 1 else rows}")
        if zeros:
            breaks.append(f"{zeros} {row if zeros == 1 else rows} of zeros")
    main = main_clause(answers, codes)
    if breaks and stretch.whole and main == EQUAL:
        main = f"all other {rows} are equal"
    if not stretch.whole:
        main = f"positions {start + stretch.first} to {start + stretch.stop - 1}: {main}"
    tail = f"; the table has {' and '.join(breaks)}" if breaks else ""
    own = (start + stretch.first, start + stretch.stop - 1)
    names = listed([f"{first} to {last}" for first, last in equal if (first, last) != own], 4)
    if names:
        tail += f"; rows are equal within positions {names}"
    tail += f"; {copied}" if copied else ""
    told: dict[str, list[str]] = {}
    for other in others:
        which, _, text = other.removeprefix("positions ").partition(": ")
        told.setdefault(text, []).append(which)
    first = main.partition(": ")[2]
    alike = told.pop(first, None) if not stretch.whole else None
    rest = [f"positions {listed(which, MOST_PARTS)}: {text}" for text, which in told.items()]
    if alike:
        rest = [f"the same holds of positions {listed(alike, MOST_PARTS)}", *rest]
    text = ". ".join(f"{each[0].upper()}{each[1:]}" for each in (f"{main}{tail}", *rest))
    return f"{text}."


def _says(answers: Mapping[str, Answer], name: str) -> bool:
    return name in answers and answers[name].answer == "yes"


def main_clause(answers: Mapping[str, Answer], codes: AxisCodes | None = None) -> str:
    """Say what one stretch is, in a part of a sentence."""
    says = partial(_says, answers)
    if says("closed_form"):
        return answers["closed_form"].sentence.removeprefix("Yes: ").rstrip(".")
    if says("rows_and_columns"):
        value = answers["rows_and_columns"].value
        share = value["row_share"] + value["column_share"]
        lone = lone_code(value["row_share"], value["column_share"])
        summed = f"{lone} alone" if lone else "row plus a code of its column"
        text = f"each patch is a code of its {summed} ({share:.0%} of the variance)"
        rotating = answers["axis_rotations"]
        return text + (_rotating_codes(rotating, codes) if says("axis_rotations") else "")
    few = ""
    if says("low_dimensional"):
        value = answers["low_dimensional"].value
        count = value["directions"]
        # The question is about the effective number: many can be fewer than expected.
        if count <= FEW * value["columns"]:
            few = (
                f"; {count} direction{' holds' if count == 1 else 's hold'} nine tenths of the "
                "variance"
            )
    on_grid = "rows_and_columns" in answers
    what, rows = "the order of positions", "rows"
    if on_grid:
        what, rows = "the place of a patch", "patches"
    if answers["order"].answer == "no":
        look = f"the {rows} look independent"
        if EQUALLY in answers["stationary"].sentence:
            look = EQUALLY
        return f"no sign that {what} matters: {look}{few}"
    if answers["order"].answer == "cannot tell":
        if answers["order"].value is None:  # too few, or all equal
            return _told(answers["order"].sentence)
        return f"it cannot be told whether {what} matters{few}"
    if on_grid:
        return _patches(answers, says) + few
    where = "how alike two positions are depends on "
    held = ""
    if says("stationary"):
        held = f"; {where}their distance alone"
    elif answers["stationary"].answer == "no" and not _wanders(answers):
        held = f"; {where}where they stand, not on their distance alone"
    beside = ""
    if says("rotations"):
        turning = answers["rotations"]
        series = answers["ladder"].answer == "yes"
        least = MOST if says("smooth") else LEADING
        winds = says("winding") and "rotation" in answers["winding"].value
        if winds and not says("smooth"):
            least = 0.0
        if series or turning.effect is None or turning.effect >= least or not turning.value:
            told = _rotations(turning, answers["ladder"]) + few
            return told + (held if answers["stationary"].answer == "no" else "")
        if turning.effect >= TOLD and not (winds and len(turning.value) == 1):
            beside = f"; beside that, {_rotations(turning, answers['ladder'])}"
    wound = ""
    if says("winding"):
        wound = f" that winds {answers['winding'].value['turns']:.1f} times around a centre"
        if CHANGES in answers["winding"].sentence:
            wound += ", faster in some parts than in others"
    return f"{_curve(answers, says, wound)}{few}{held}{beside}"


def _curve(answers: Mapping[str, Answer], says: Callable[[str], bool], wound: str) -> str:
    """Say what kind of path a table without rotations is."""
    if says("smooth"):
        value = answers["smooth"].value
        straight = value.get("straight")
        if straight is not None and straight > ALL_LINE:
            return "a straight line: each position is as far along it as its number says"
        if straight is not None:
            return f"a straight line in noise: the line holds {straight:.0%} of the variance"
        length = two_figures(value["length"])
        return f"a smooth curve{wound}: likeness falls to half within {length} positions"
    if answers["smooth"].answer == "no" and _wanders(answers):
        text = "like a random walk: no smoother than random steps added up, and no sign of bounds"
    else:
        cosine = answers["order"].value
        mean = f"(mean cosine {hundredths(cosine)})"
        if cosine >= ALIKE:
            text = f"neighbours are alike {mean}"
        elif cosine <= -ALIKE:
            text = f"neighbours point away from each other {mean}"
        else:
            text = f"neighbours are hardly alike {mean}, though the order of positions matters"
            if BY_DISTANCE in answers["order"].sentence:
                text = (
                    "how far rows lie from the mean row changes along the table, while their "
                    "directions show no order"
                )
    return f"{text}{f'; it is a path{wound}' if wound else ''}"


def _patches(answers: Mapping[str, Answer], says: Callable[[str], bool]) -> str:
    """Say what kind of surface a table of patches without codes of rows and columns is."""
    held = "; displacement alone decides how alike two are" if says("stationary") else ""
    if says("smooth"):
        length = two_figures(answers["smooth"].value["length"])
        text = f"a smooth surface over the grid: likeness falls to half within {length} patches"
        return text + held
    cosine = answers["order"].value
    are = "alike" if cosine >= ALIKE else "hardly alike"
    if cosine <= -ALIKE:
        are = "opposed"
    return f"neighbouring patches are {are} (mean cosine {hundredths(cosine)}){held}"


def _told(sentence: str) -> str:
    """Return an open answer as a part of a sentence."""
    reason = sentence.partition(": ")[2].rstrip(".")
    return reason or f"nothing can be told{sentence.removeprefix('Cannot be told').rstrip('.')}"


def _wanders(answers: Mapping[str, Answer]) -> bool:
    """Whether the table is no better bounded than its steps added up at random."""
    bounded = answers["stationary"]
    return bounded.answer == "no" and WANDERS in bounded.sentence


def _rotations(answer: Answer, ladder: Answer) -> str:
    series = ladder.answer == "yes"
    base = (ladder.value or {}).get("base") if series else None
    if base is not None:
        return f"a geometric series of rotations, like the sinusoid of base {rounded(base)}"
    if not answer.value:
        return "a sum of many rotations"
    noun = noun_of([rotation["circularity"] for rotation in answer.value])
    kind = f"a geometric series of {plural(noun)}" if series else plural(noun)
    if len(answer.value) == 1:
        kind = f"a {noun}"
    held = "" if answer.effect is None else f", holding {percent(answer.effect)} of the variance"
    return f"{kind} with {told_periods(answer.value)}{held}"
