"""Compare what posprobe says about a checkpoint with the facts about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.errors import PosprobeError
from posprobe.families import find_encodings
from posprobe.layouts import Grid

OUTCOMES = ("right", "unknown", "wrong")


@dataclass(frozen=True)
class Case:
    """A checkpoint as posprobe sees it, and the facts about it (`truth_rules.Fact` as plain data).

    ``instead`` names what else tells places apart: convolutions, recurrence.
    """

    library: str
    name: str
    model_class: str
    config: Mapping[str, Any]
    tensors: Mapping[str, tuple[tuple[int, ...], str]]
    facts: list[dict[str, Any]] = field(default_factory=list)
    instead: tuple[str, ...] = ()

    def checkpoint(self) -> Checkpoint:
        """Make the lazy checkpoint; it has no values to fetch."""
        tensors = {
            name: TensorInfo(name, tuple(shape), dtype, "model.safetensors")
            for name, (shape, dtype) in self.tensors.items()
        }
        return Checkpoint(f"{self.library}:{self.name}", tensors, no_values, self.config)


class NoValues(Exception):
    """posprobe asked for values; a model on the meta device has none."""


def no_values(info: TensorInfo) -> bytes:
    """Refuse to read values."""
    raise NoValues(info.name)


@dataclass(frozen=True)
class Grade:
    """How posprobe fared for one scheme of one checkpoint."""

    library: str
    name: str
    scheme: str
    outcome: str
    expected: str
    observed: str


@dataclass(frozen=True)
class Claim:
    """One encoding that posprobe names, reduced to what is compared."""

    scheme: str
    names: tuple[str, ...]
    positions: int | None
    grid: tuple[int, int] | None
    special: tuple[int, ...]
    problem: str | None

    def __str__(self) -> str:
        """Describe the claim on one line."""
        rows = ""
        if self.positions is not None:
            grid = f" ({self.grid[0]} x {self.grid[1]})" if self.grid else ""
            rows = f" {self.positions} positions{grid}, special rows {list(self.special)}"
        problem = f" PROBLEM {self.problem[:80]}" if self.problem else ""
        suffix = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return (
            f"{self.scheme} {self.names[0] if self.names else '-'}{suffix}{rows}{problem}"
        )


def claims_of(case: Case) -> list[Claim]:
    """Ask posprobe and reduce its answer."""
    claims = []
    for encoding in find_encodings(case.checkpoint()):
        names = [encoding.tensor] if encoding.tensor is not None else []
        names += getattr(encoding, "tensors", ())
        positions: int | None = None
        grid: tuple[int, int] | None = None
        special: tuple[int, ...] = ()
        rows = encoding.rows
        if rows is not None:
            layout = rows.layout
            if isinstance(layout, Grid):
                grid = (layout.height, layout.width)
                positions = layout.height * layout.width
            else:
                positions = layout.size
            prefix = [row.row for row in rows.prefix]
            special = tuple(sorted(prefix + [row.row for row in rows.dropped]))
        claims.append(
            Claim(
                encoding.scheme,
                tuple(dict.fromkeys(info.name for info in names)),
                positions,
                grid,
                special,
                getattr(encoding, "problem", None),
            )
        )
    return claims


def grade(case: Case) -> list[Grade]:
    """Compare what posprobe says with the facts, one grade per scheme that either of them names."""
    try:
        claims = claims_of(case)
    except NoValues as error:
        return [
            Grade(
                case.library,
                case.name,
                scheme,
                "unknown",
                describe(facts),
                f"reads {error}",
            )
            for scheme, facts in by_scheme(case.facts).items()
        ]
    except PosprobeError as error:
        return [
            Grade(
                case.library,
                case.name,
                scheme,
                "unknown",
                describe(facts),
                f"refuses: {error}",
            )
            for scheme, facts in by_scheme(case.facts).items()
        ]
    grades = []
    facts_by_scheme = by_scheme(case.facts)
    if not [s for s in facts_by_scheme if s != "formula"]:
        stray = [c for c in claims if c.names or c.scheme != "fixed"]
        outcome = "wrong" if stray else "right"
        observed = "; ".join(map(str, stray)) or "nothing"
        grades.append(
            Grade(case.library, case.name, "none", outcome, "nothing", observed)
        )
        return grades + grade_formula(case, facts_by_scheme, claims)
    absolute = [c for c in claims if c.scheme in ("learned", "fixed")]
    grades += grade_absolute(case, absolute)
    for scheme in ("rotary", "relative", "alibi"):
        facts = facts_by_scheme.get(scheme, [])
        scheme_claims = [c for c in claims if c.scheme == scheme]
        if not facts and not scheme_claims:
            continue
        observed = "; ".join(str(c) for c in scheme_claims) or "nothing"
        if scheme == "relative":
            outcome = grade_relative(facts, scheme_claims)
        else:
            outcome = (
                "right"
                if facts and scheme_claims
                else "wrong"
                if scheme_claims
                else "unknown"
            )
        if outcome == "unknown" and all(f["optional"] for f in facts):
            continue
        grades.append(
            Grade(case.library, case.name, scheme, outcome, describe(facts), observed)
        )
    return grades + grade_formula(case, facts_by_scheme, claims)


def grade_formula(
    case: Case, facts: Mapping[str, list[dict[str, Any]]], claims: list[Claim]
) -> list[Grade]:
    """Grade what is computed and not stored: posprobe is right if it says so at all."""
    if "formula" not in facts:
        return []
    formula_claims = [c for c in claims if c.scheme == "fixed" and not c.names]
    outcome = "right" if formula_claims else "unknown"
    observed = "; ".join(map(str, formula_claims)) or "nothing"
    return [
        Grade(
            case.library,
            case.name,
            "formula",
            outcome,
            describe(facts["formula"]),
            observed,
        )
    ]


def by_scheme(facts: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group facts by scheme."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for fact in facts:
        groups[fact["scheme"]].append(fact)
    return groups


def describe(facts: Iterable[Mapping[str, Any]]) -> str:
    """Describe facts on one line."""
    texts = []
    for fact in facts:
        text = fact["tensors"][0] if fact["tensors"] else fact["part"] or fact["scheme"]
        if len(fact["tensors"]) > 1:
            text += f" and {len(fact['tensors']) - 1} more"
        if fact["rows"] is not None and fact["scheme"] in ("learned", "fixed"):
            text += f" {fact['rows'] - len(fact['special'])} positions"
            if fact["grid"]:
                text += f" ({fact['grid'][0]} x {fact['grid'][1]})"
            text += (
                f", special rows {list(fact['special'])}"
                if len(fact["special"]) < 9
                else (f", {len(fact['special'])} special rows")
            )
        text += " (factored)" if fact["factored"] else ""
        text += " (optional)" if fact["optional"] else ""
        texts.append(text)
    return "; ".join(texts[:4]) + (
        f"; and {len(texts) - 4} more" if len(texts) > 4 else ""
    )


def grade_absolute(case: Case, claims: list[Claim]) -> list[Grade]:
    """Grade the tables of absolute positions: every one named, with its rows, and no other."""
    facts = {
        f["tensors"][0]: f for f in case.facts if f["scheme"] in ("learned", "fixed")
    }
    stray = {n for f in case.facts for n in (*f["tensors"], *f["allowed"])} - set(facts)
    outcomes: dict[str, list[tuple[str, str]]] = defaultdict(list)
    names: set[str] = set()
    for claim in claims:
        for name in claim.names:
            names.add(name)
            fact = facts.get(name)
            if fact is None:
                scheme = claim.scheme
                reason = (
                    "part of another scheme" if name in stray else "no table of positions"
                )
                outcomes[scheme].append(("wrong", f"{name}: {reason}"))
                continue
            if claim.scheme == "fixed" and fact["scheme"] == "learned":
                outcomes[fact["scheme"]].append(("wrong", f"{name} is learned; {claim}"))
                continue
            outcome = grade_rows(fact, claim)
            if not (fact["optional"] and outcome == "unknown"):
                outcomes[fact["scheme"]].append((outcome, str(claim)))
    for name, fact in facts.items():
        if name not in names and not fact["optional"]:
            outcomes[fact["scheme"]].append(("unknown", f"nothing about {name}"))
    grades = []
    for scheme, texts in outcomes.items():
        worst = max((o for o, _ in texts), key=OUTCOMES.index)
        observed = "; ".join(text for o, text in texts if o == worst)
        expected = (
            describe(f for f in facts.values() if f["scheme"] == scheme) or "nothing"
        )
        grades.append(Grade(case.library, case.name, scheme, worst, expected, observed))
    return grades


def grade_rows(fact: Mapping[str, Any], claim: Claim) -> str:
    """Compare which rows are positions, and how they lie.

    Of one axis of a factored table only the number of rows counts; a tensor of several tables is
    rightly named only without rows.
    """
    if claim.problem or claim.positions is None:
        return "right" if fact["rows"] is None or fact["factored"] else "unknown"
    if fact["rows"] is None:
        return "wrong"
    if fact["factored"]:
        return (
            "right" if claim.positions + len(claim.special) == fact["rows"] else "wrong"
        )
    special = tuple(fact["special"])
    if claim.positions != fact["rows"] - len(special) or claim.special != special:
        return "wrong"
    grid = tuple(fact["grid"]) if fact["grid"] else None
    return "right" if grid is None or claim.grid == grid else "wrong"


def grade_relative(facts: list[dict[str, Any]], claims: list[Claim]) -> str:
    """Every tensor named, and none that is not part of the scheme."""
    claimed_names = {name for claim in claims for name in claim.names}
    allowed_names = {name for f in facts for name in (*f["tensors"], *f["allowed"])}
    if not facts or claimed_names - allowed_names:
        return "wrong" if claimed_names or claims else "unknown"
    missing = [
        name
        for fact in facts
        for name in fact["tensors"]
        if claimed_names.isdisjoint(fact["any_of"].get(name, (name,)))
    ]
    return "unknown" if missing else "right"
