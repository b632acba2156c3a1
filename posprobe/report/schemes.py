"""Every analysis of encodings that have no table, with what is needed to repeat it; the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from posprobe.analyses import Result
from posprobe.analyses.facts import Answer
from posprobe.analyses.models.head_biases import heads, smoothness
from posprobe.analyses.models.rotary import axis_ladders, rotation
from posprobe.analyses.models.rotary_weights import WeightUse
from posprobe.analyses.result import as_block, plain, stored
from posprobe.blocks import environment
from posprobe.data import read_data
from posprobe.encodings.tables import whole
from posprobe.errors import UsageError
from posprobe.figures.schemes import ALONE
from posprobe.layouts import Grid
from posprobe.page import Evidence, Fact, Page, Picture, Row, Table, columns
from posprobe.progress import stage
from posprobe.questions.schemes import answers_of, kind_of
from posprobe.report.document import answer_block, findings_of
from posprobe.report.files import ANALYSIS
from posprobe.report.render import headline, origin, tensor, versions
from posprobe.report.saved import Plotted
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme, facts, stated_length
from posprobe.sources import describe_source
from posprobe.tables import PositionTable
from posprobe.text import Block, between, cell, lookup
from posprobe.words import PICTURES, claim, pictures, weights
from posprobe.words.schemes import KEYS, line, summary, what_it_is

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.blocks import EnvironmentBlock


#: Positions at which curves are taken where neither the user nor the checkpoint states a length.
LENGTH = 512
#: Longest curve that is taken by default: beyond, a page shows no more.
LONGEST = 4096
#: Most positions that may be asked for.
FARTHEST = 2**17


@dataclass(frozen=True, eq=False, repr=False)
class SchemeAnalysis(Plotted):
    """Encodings without a table and the results of their analyses.

    Parameters
    ----------
    records
        The encodings, all of one checkpoint.
    results
        For each, its frozen results by name: ``heads``, with ``smoothness`` for learned ones and
        ``rotation`` for rotary ones, and ``weights`` where those of queries and keys were read.
    environment
        Versions, seed, command and time.

    Examples
    --------
    >>> import posprobe as pp
    >>> (rotary,) = pp.load_schemes("rotary:2048x64")
    >>> analysis = pp.report.analyze_schemes(rotary)
    >>> analysis.records == (rotary,)
    True
    >>> print(f"{analysis.results[0]['rotation'].wavelength[0]:.2f}")
    6.28
    """

    records: tuple[Scheme, ...]
    results: tuple[Mapping[str, Result], ...]
    environment: EnvironmentBlock

    @property
    def name(self) -> str:
        """The name of the checkpoint, or of the only encoding."""
        if len(self.records) == 1:
            return self.records[0].name
        return Path(self.records[0].source.reference).name or self.records[0].source.reference

    def _schemes(self) -> list[dict[str, Any]]:
        return [
            {
                "name": record.name,
                "family": record.family,
                **facts(record),
                "notes": list(record.notes),
                "source": describe_source(record.source),
                **{name: as_block(result) for name, result in results.items()},
            }
            for record, results in zip(self.records, self.results, strict=True)
        ]

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Every question with its answer."""
        return tuple(answers_of(self._schemes()).values())

    @property
    def numbers(self) -> dict[str, Any]:
        """Every number by its key path, such as ``rotation.never_turn_training``.

        Of several encodings, the name of each stands before the path. Lists have a number for each
        head.
        """
        return {
            f"{prefix}{name}.{key}": value
            for prefix, results in self._named()
            for name, result in results.items()
            for key, value in _numbers(as_block(result))
        }

    def _drawable(self) -> Mapping[str, Result]:
        found = {f"{of}{name}": one for of, own in self._named() for name, one in own.items()}
        return dict(sorted(found.items(), key=lambda each: not each[0].endswith("heads")))

    def _named(self) -> Iterator[tuple[str, Mapping[str, Result]]]:
        """Yield the results of each encoding, and what their keys begin with."""
        for record, results in zip(self.records, self.results, strict=True):
            yield f"{record.name}." if len(self.records) > 1 else "", results

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.analysis/2`)."""
        schemes = self._schemes()
        answers = answers_of(schemes)
        told = [answer_block(answer) for answer in answers.values()]
        return {
            "schema": ANALYSIS,
            "name": self.name,
            "verdict": {"summary": summary(answers), "answers": told},
            "schemes": schemes,
            "environment": dict(self.environment),
            "findings": plain(findings_of(answers.values())),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: each encoding's arrays under its number."""
        arrays: dict[str, NDArray[Any]] = {}
        for number, results in enumerate(self.results):
            for result in results.values():
                arrays |= {f"{number}_{name}": values for name, values in stored(result).items()}
        return arrays

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure of the bundle."""
        from posprobe.figures.schemes import scheme_figures

        return scheme_figures(self.records, self.results)

    def _of(self) -> str:
        return repr(self.name)


def _numbers(block: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the numbers of a block, and lists of them, with their key paths."""
    for key, value in block.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}.")
        elif not isinstance(value, str | bool):
            yield f"{prefix}{key}", value


def analyze_schemes(
    *records: Scheme,
    length: int | None = None,
    seed: int = 0,
    command: str | None = None,
    weights: Mapping[int, WeightUse] | None = None,
) -> SchemeAnalysis:
    """Analyse encodings without a table.

    Parameters
    ----------
    records
        One or more, as `load_schemes` returns them.
    length
        Positions at which the curves are taken; where None, the configured length up to 4,096.
        Windows of patches have a size of their own.
    seed
        Random seed of the permutations that learned biases are compared with.
    command
        Command line to record.
    weights
        What weights of queries and keys say, by the number of the record.

    Raises
    ------
    UsageError
        If there is no record or one is not an encoding without a table, or the length is not a
        whole number from 2 to 131,072.

    Examples
    --------
    >>> import posprobe as pp
    >>> analysis = pp.report.analyze_schemes(*pp.load_schemes("rotary:2048x64"))
    >>> sorted(analysis.results[0])
    ['heads', 'rotation']
    """
    if not records:
        raise UsageError(
            "there is no encoding to analyse. Pass those that posprobe.load_schemes returns."
        )
    given: tuple[object, ...] = records
    for each in given:
        check_record(each)
        if isinstance(each, PositionTable):
            raise UsageError(f"{each.name} is a table: analyse it with posprobe.analyze.")
    if length is not None and not 2 <= whole("the length", length) <= FARTHEST:
        raise UsageError(f"a length of {length}: from 2 to {FARTHEST} positions are looked at.")
    with stage("Measuring encodings", len(records)) as done:
        results = []
        for number, record in enumerate(records):
            found = _measure(record, length, seed)
            if weights and number in weights:
                found["weights"] = weights[number]
            results.append(found)
            done(1)
    return SchemeAnalysis(tuple(records), tuple(results), environment("cpu", seed, command))


def check_record(record: object) -> None:
    """Refuse what is not an encoding, and say what to pass instead.

    Raises
    ------
    UsageError
        If it is neither a table nor an encoding without one.
    """
    if not isinstance(record, PositionTable | Scheme):
        raise UsageError(
            f"{type(record).__name__} is not an encoding of positions. Pass what "
            "posprobe.load_schemes or posprobe.load returns, one by one."
        )


def _measure(record: Scheme, length: int | None, seed: int) -> dict[str, Result]:
    match record:
        case RelativeBias():
            curves = record.curves(_size(record, length))
            return {
                "heads": heads(
                    curves, quantity=record.quantity, causal=record.causal, unit=record.unit
                ),
                "smoothness": smoothness(record.values, seed=seed),
            }
        case LinearBias():
            return {"heads": heads(record.curves(_size(record, length)), causal=record.causal)}
        case Rotary():
            # The rule follows the length of the text, also in layers that see a window of it.
            text = length or record.max_positions
            measured = rotation(
                record.frequencies(text),
                unscaled=record.unscaled(),
                training=record.seen(record.training_length),
                target=record.seen(text),
                attention_factor=record.attention_factor(text),
                axes=record.axes,
                length=text,
                along=axis_ladders(record.along_axes(), record.extent),
            )
            curves = record.curves(_size(record, length))
            return {"rotation": measured, "heads": heads(curves, quantity="cosine")}


def _size(record: Scheme, length: int | None) -> int:
    if isinstance(record, RelativeBias) and isinstance(record.layout, Grid):
        return record.layout.size
    return length or min(stated_length(record) or LENGTH, LONGEST)


def scheme_page(document: Block) -> Page:
    """Lay out the page of encodings without a table."""
    schemes = document["schemes"]
    kinds: dict[str, list[Block]] = {}
    for scheme in schemes:
        kinds.setdefault(kind_of(scheme), []).append(scheme)
    first, *others = kinds
    notes = [(scheme["name"], f"{note}.") for scheme in schemes for note in scheme["notes"]]
    learned = dict.fromkeys(kind in ("bias", "cosine") for kind in kinds)
    return Page(
        title=document["name"],
        subject="how attention knows position",
        lead=f"{', '.join(map(what_it_is, kinds.values()))} · no position table",
        headline=headline(document),
        notes=tuple(_gathered(notes, len(schemes))),
        pictures=tuple(_of_kind(first)),
        evidence=tuple(_evidence(document, others)),
        key=" ".join(KEYS[each] for each in learned),
        numbers=_all_numbers(schemes),
        provenance=(
            *origin(schemes[0]["source"]),
            *(fact for scheme in schemes for fact in _whence(scheme, several=len(schemes) > 1)),
            *versions(document["environment"]),
        ),
    )


def _whence(scheme: Block, *, several: bool) -> Iterator[Fact]:
    whose = f"{scheme['name']}: " if several else ""
    if scheme["family"]:
        yield Fact(f"{whose}family", scheme["family"])
    yield from tensor(scheme["source"], whose)


def _pictures(texts: Mapping[str, str], ending: str = "") -> tuple[Picture, ...]:
    """Name the drawings that a bundle may hold: of each stem one, or several with numbers."""
    numbers = ("", *(f"_{k + 1}" for k in range(1, ALONE)))
    return tuple(
        Picture(f"{stem}{number}{ending}", text)
        for stem, text in texts.items()
        for number in numbers
    )


def _of_kind(kind: str) -> tuple[Picture, ...]:
    return _pictures(PICTURES[kind], "_cosine" if kind == "cosine" else "")


def _evidence(document: Block, others: Sequence[str]) -> Iterator[Evidence]:
    """Yield the answers; drawings of ``others`` are not those of the first screen."""
    drawings = {kind: _of_kind(kind) for kind in others}
    depth = pictures("encodings", ("depth",))
    for answer in document.get("verdict", {}).get("answers", ()):
        kind, _, what = answer["question"].partition("_")
        drawn = drawings.pop(kind, ())
        if what == "smooth":
            # Of both kinds there is one drawing over all encodings.
            drawn, depth = (*drawn, *depth), ()
        yield Evidence((line(answer),), sentences=(claim(answer),), pictures=drawn)
    yield from _of_weights(document["schemes"])


def _of_weights(schemes: Sequence[Block]) -> Iterator[Evidence]:
    """Yield what query and key weights say, and how far arithmetic carries angles."""
    several = len(schemes) > 1
    known = [scheme for scheme in schemes if scheme.get("weights")]
    if known:
        said = [
            f"{scheme['name']}: {each}" if several else each
            for scheme in known
            for each in weights.sentences(scheme["weights"])
        ]
        first = weights.line(known[0]["weights"])
        yield Evidence((first,), sentences=tuple(said), pictures=_pictures(PICTURES["weights"]))
    ladders = [each for scheme in schemes for each in lookup(scheme, "rotation.along") or ()]
    if ladders:
        yield Evidence((weights.axes_line(ladders),), sentences=tuple(map(weights.axis, ladders)))
    found = [each for scheme in schemes if (each := lookup(scheme, "rotation.horizon"))]
    if found:
        unlike = {tuple(each.items()): each for each in found}.values()
        told = tuple(map(weights.horizon, unlike))
        yield Evidence((weights.horizon_line(found),), sentences=told)


def _all_numbers(schemes: Sequence[Block]) -> Table:
    """Tabulate all numbers: a column for each encoding, and of its heads the range."""
    rows: list[Row] = []
    known = read_data("report/numbers.toml")
    for key, number in known["encodings"].items():
        found = [lookup(scheme, key) for scheme in schemes]
        if any(value is not None for value in found):
            rows.append(
                (number["label"], *(cell(value, number.get("form", ".3g")) for value in found))
            )
    if any(scheme.get("causal") for scheme in schemes):
        said = {True: "yes", False: "no", None: "–"}
        rows.append(("later keys hidden", *(said[scheme.get("causal")] for scheme in schemes)))
    if any(scheme.get("special") for scheme in schemes):
        tokens = (", ".join(scheme.get("special") or ()) or "–" for scheme in schemes)
        rows.append(("tokens with biases of their own", *tokens))
    for key in sorted({key for scheme in schemes for key in scheme.get("scaling") or ()}):
        if key not in ("rope_type", "type", "rope_theta"):
            found = [(scheme.get("scaling") or {}).get(key) for scheme in schemes]
            rows.append((f"rule: {key}", *map(_parameter, found)))
    for key, label in known["heads"].items():
        lists = [_of_heads(scheme, key) for scheme in schemes]
        if any(value is not None for values in lists for value in values):
            rows.append((label, *map(_over_heads, lists)))
    unit = " or ".join(dict.fromkeys(scheme.get("unit", "positions") for scheme in schemes))
    headings = columns("number", *(f"={scheme['name']}" for scheme in schemes))
    return Table(f"All numbers; distances in {unit}.", headings, tuple(rows))


def _parameter(value: object) -> str:
    if not isinstance(value, list):
        return cell(value)
    return f"{', '.join(map(cell, value[:4]))}{', …' if len(value) > 4 else ''}"


def _of_heads(scheme: Block, key: str) -> list[Any]:
    """Return a number of every head; none of a rotary encoding, whose heads are all alike."""
    if kind_of(scheme) == "rotary":
        return []
    found = lookup(scheme, key) or []
    if key == "heads.peak":
        # Where all values of a head are equal, none is the largest.
        near = scheme["heads"].get("near", found)
        found = [None if no is None else peak for peak, no in zip(found, near, strict=True)]
    return list(found)


def _over_heads(values: list[Any]) -> str:
    """Write the range of a number over heads; of offsets on a grid the most common."""
    known = [value for value in values if value is not None]
    if any(isinstance(value, list) for value in known):
        texts = (", ".join(map(str, value)) for value in known)
        ((common, count),) = Counter(texts).most_common(1)
        return f"{common} ({count} of {len(values)} heads)"
    return between(known) if known else "–"


def _gathered(found: Sequence[tuple[str, str]], count: int) -> list[str]:
    """Return every text once, with the names that it holds for unless it does for all."""
    names: dict[str, list[str]] = {}
    for name, text in found:
        names.setdefault(text, []).append(name)
    return [
        text
        if len(whose) == count
        else f"{', '.join(whose[:4])}{' and others' if len(whose) > 4 else ''}: {text}"
        for text, whose in names.items()
    ]
