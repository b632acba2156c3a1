"""Do two copies of a model encode position alike? What is read of both, and the verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from posprobe import settings
from posprobe.checkpoint_analysis import load_any
from posprobe.checkpoints import Checkpoint, TensorInfo, open_local
from posprobe.encodings import FORMULAS
from posprobe.errors import InvalidCheckpoint, NoPositionTable, PosprobeError, UnknownReference
from posprobe.families import find_encodings, open_reference, read_table
from posprobe.families.build import build_scheme
from posprobe.families.find import called
from posprobe.families.parts import parts_of
from posprobe.progress import stage
from posprobe.reference import named_in_errors, parse_reference
from posprobe.relations import (
    RULES,
    Finding,
    Ladder,
    Projections,
    relate_biases,
    relate_ladders,
    relate_layouts,
    relate_projections,
    relate_slopes,
    relate_tables,
)
from posprobe.relations.dumps import NAMES, Dump, is_dump, read_dump, relate_query
from posprobe.report.narrator import check as narrator
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.sources import Source
from posprobe.tables import PositionTable

Record: TypeAlias = PositionTable | Scheme
#: Most numbers of an array of a dump, and of a projection that is read whole: 128 MiB as float64.
MOST = 2**24
#: Queries of a layer; keys are called alike.
_QUERY = re.compile(
    r"(?P<before>(?:.*\.)?)(?P<layer>\d+)\.(?P<name>(?:self_attn|attention|attn|self_attention)?\.?"
    r"(?:self\.query|q_proj|wq|attn_q|to_q))\.weight"
)
_KEYS = {"query": "key", "q_proj": "k_proj", "wq": "wk", "attn_q": "attn_k", "to_q": "to_k"}
_OTHERS = re.compile(r"vision|visual|audio")
#: What of two models is compared first, and so named first.
_ORDER = (
    "rows", "values", "ladder", "factor", "columns", "pairs", "sections", "heads", "slopes",
    "buckets", "window", "logits", "encoding", "weights",
)  # fmt: skip


@dataclass(frozen=True)
class NotCompared:
    """What could not be compared, and whether the verdict hangs on it.

    Parameters
    ----------
    what
        As in `Finding`, or the kind of an encoding.
    reason
        A key of the narrator.
    about
        What the sentence names.
    decides
        Whether copies may differ in it, so that they cannot be called alike.
    """

    what: str
    reason: str
    about: str = ""
    decides: bool = True


@dataclass(frozen=True)
class Check:
    """What two copies of a model are to each other, as far as positions go.

    Parameters
    ----------
    a, b
        Names of both.
    alike
        Whether they encode position alike; None where that cannot be told.
    causes
        What differs, the most telling first.
    compared
        What is alike.
    not_compared
        What could not be compared.
    context
        The shorter context of both, in positions; None where none is stated.

    Examples
    --------
    >>> import posprobe as pp
    >>> found = pp.check("rotary:4096x128,base=500000", "rotary:4096x128")
    >>> found.alike, found.causes[0].cause, round(found.causes[0].first_distance, 2)
    (False, 'base', 0.77)
    """

    a: str
    b: str
    alike: bool | None
    causes: tuple[Finding, ...]
    compared: tuple[Finding, ...]
    not_compared: tuple[NotCompared, ...] = ()
    context: int | None = None

    @property
    def exit_code(self) -> int:
        """0 alike, 6 different, 7 cannot tell."""
        return {True: 0, False: 6, None: 7}[self.alike]

    def __str__(self) -> str:
        """Return the verdict and what it rests on, at most 12 lines."""
        return "\n".join(
            narrator.lines(
                self.alike, self.causes, self.compared, map(_told, self.not_compared), self.context
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "schema": "posprobe.check/1",
            "a": self.a,
            "b": self.b,
            "alike": self.alike,
            "context": self.context,
            "causes": [_as_json(found) for found in self.causes],
            "compared": [_as_json(found) for found in self.compared],
            "not_compared": [
                {"what": each.what, "reason": _told(each)} for each in self.not_compared
            ],
        }


def _told(each: NotCompared) -> str:
    return narrator.not_compared(each.reason, each.about)


def _as_json(found: Finding) -> dict[str, Any]:
    about = {key: _plain(value) for key, value in asdict(replace(found, more={})).items()}
    more = {key: _plain(value) for key, value in found.more.items()}
    rule = {"tolerance": RULES[found.cause].tolerance}
    return {**about, **rule, "more": more, "sentence": narrator.told(found)}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@dataclass(frozen=True, eq=False)
class _Side:
    """What was read of one copy: its encodings by kind and name."""

    name: str
    records: Mapping[str, Mapping[str, Record]]
    checkpoint: Checkpoint | None = None
    dump: Dump | None = None
    declared: bool = True
    unread: tuple[str, ...] = field(default=())


def check(
    a: str | PathLike[str] | Record,
    b: str | PathLike[str] | Record,
    *,
    same_weights: bool = False,
    all_layers: bool = False,
    offline: bool = False,
) -> Check:
    """Find out whether two copies of a model encode position alike, and if not, why.

    Of weights only position tables, and the projections to queries and keys of the first, middle
    and last layer are read; from the Hub and of large models only the rows of one head.

    Parameters
    ----------
    a, b
        References as for `posprobe.load`, records that were loaded, or an engine's dump: an
        ``.npz`` with ``inv_freq`` ``[pairs]``, or ``cos`` and ``sin`` ``[positions, pairs]``, and
        a query ``q`` with ``q_rotated``.
    same_weights
        Count other weights as a difference.
    all_layers
        Compare the projections of every layer, and whole.
    offline
        Use local files only.

    Raises
    ------
    NoPositionTable
        If neither has a position.
    PosprobeError
        As for `posprobe.load`; InvalidCheckpoint also if a dump cannot be one.

    Examples
    --------
    >>> import posprobe as pp
    >>> table = pp.load("sample:digits-vit")
    >>> print(pp.check(table, pp.table(table.values[::-1], grid=(8, 8))).causes[0].cause)
    reversed
    """
    sides = [_open(given, offline=offline) for given in (a, b)]
    one, other = sides
    found, missing = _compare(one, other, all_layers=all_layers)
    contexts = [
        record.max_positions
        for side in sides
        for record in side.records.get("rotary", {}).values()
        if isinstance(record, Rotary) and record.max_positions
    ]
    found.sort(key=lambda each: (_ORDER.index(each.what), each.part))
    weights = {"moved", "other_weights"} if same_weights else set()
    causes = tuple(each for each in found if not each.alike or each.cause in weights)
    compared = tuple(each for each in found if each not in causes)
    unsure = any(each.decides for each in missing) or not found
    alike = False if causes else (None if unsure else True)
    return Check(
        one.name, other.name, alike, causes, compared, tuple(missing), min(contexts, default=None)
    )


# --- reading ----------------------------------------------------------------------------------


def _open(given: str | PathLike[str] | Record, *, offline: bool) -> _Side:
    if not isinstance(given, str | PathLike):
        return _Side(given.name, {_kind(given): {"": given}})
    parsed = parse_reference(given)
    source = parsed.source
    formula = (":" in source and not source.startswith("sample:")) or source in FORMULAS
    if formula and not parsed.is_path:
        loaded = load_any(parsed.text)
        first = loaded[0] if isinstance(loaded, tuple) else loaded
        return _Side(parsed.text, {_kind(first): {"": first}})
    with named_in_errors(source), stage(f"Reading {parsed.text}"):
        if parsed.is_path and source.endswith(".npz"):
            archive = open_local(Path(source))
            if is_dump(archive.tensors):
                return _Side(parsed.text, {}, dump=_read_dump(archive), declared=False)
        checkpoint = open_reference(parsed, offline=offline)
        found = find_encodings(checkpoint)
        if parsed.table and parsed.table not in checkpoint.models:
            found = called(checkpoint, found, parsed.table)
            if not found:
                raise UnknownReference(
                    f"{parsed.text}: it has no encoding of that name. `posprobe inspect {source}` "
                    "lists those that it has."
                )
        records: dict[str, dict[str, Record]] = {}
        unread = []
        for encoding in found:
            try:
                record: Record = (
                    build_scheme(checkpoint, encoding, encoding.name or source, parsed.text)
                    if encoding.rule is None
                    else read_table(checkpoint, encoding, parsed)
                )
            except NoPositionTable:
                unread.append(encoding.scheme)
                continue
            records.setdefault(_kind(record), {})[encoding.name] = record
    declared = any(part.model_type for part in parts_of(checkpoint.config))
    return _Side(parsed.text, records, checkpoint, None, declared, tuple(unread))


def _read_dump(archive: Checkpoint) -> Dump:
    arrays = {}
    for name in NAMES.keys() & archive.tensors.keys():
        info = archive.tensors[name]
        if math.prod(info.shape) > MOST:
            raise InvalidCheckpoint(
                f"{info.file}: {name}, shape {list(info.shape)}, has more than {MOST} numbers. "
                "Write fewer positions: a few thousand tell as much."
            )
        if info.dtype in ("I32", "I64"):
            whole = np.frombuffer(archive.fetch(info), f"<i{int(info.dtype[1:]) // 8}")
            arrays[name] = whole.astype(np.float64).reshape(info.shape)
        else:
            arrays[name] = archive.read(name).values.astype(np.float64)
    return read_dump(arrays, archive.location)


def _kind(record: Record) -> str:
    return "table" if isinstance(record, PositionTable) else record.scheme


# --- comparing --------------------------------------------------------------------------------


def _compare(a: _Side, b: _Side, *, all_layers: bool) -> tuple[list[Finding], list[NotCompared]]:
    if a.dump is not None and b.dump is None:
        raise InvalidCheckpoint(
            f"{a.name}: a dump is held against a checkpoint. Name the checkpoint first."
        )
    if not a.records and not b.records and a.dump is None and not a.unread and not b.unread:
        raise NoPositionTable(
            f"{a.name} and {b.name}: neither has a position that could be compared. `posprobe "
            "inspect` says what they have."
        )
    if b.dump is not None:
        return _against_dump(a, b.dump)
    found: list[Finding] = []
    missing = [
        NotCompared(scheme, "no_numbers", decides=False)
        for scheme in sorted({*a.unread} & {*b.unread})
    ]
    if not a.records.keys() & b.records.keys():
        kinds = [" and ".join(side.records) or "nothing" for side in (a, b)]
        return [], [*missing, NotCompared("encoding", "other_kinds", " | ".join(kinds))]
    for kind in sorted({*a.records, *b.records}):
        one, other = a.records.get(kind, {}), b.records.get(kind, {})
        if not one or not other:
            found.append(Finding("encoding", "missing", *((kind, None) if one else (None, kind))))
            continue
        pairs = _matched(one, other)
        if len(pairs) < max(len(one), len(other)):
            counts = f"{len(one)} | {len(other)}"
            missing.append(NotCompared(kind, "several", counts))
        for name, mine, theirs in pairs:
            part = name if len(pairs) > 1 else ""
            found += [replace(each, part=part) for each in _related(mine, theirs)]
    if "rotary" in a.records and "rotary" in b.records:
        more, others = _layouts(a, b, all_layers=all_layers)
        found, missing = [*found, *more, *_settings(a, b)], [*missing, *others]
    return found, missing


def _matched(
    one: Mapping[str, Record], other: Mapping[str, Record]
) -> list[tuple[str, Record, Record]]:
    """Pair encodings by name, or in their order where there are as many."""
    if one.keys() != other.keys() and len(one) == len(other):
        return [(name, one[name], theirs) for name, theirs in zip(one, other.values(), strict=True)]
    return [(name, one[name], other[name]) for name in one if name in other]


def _related(a: Record, b: Record) -> Sequence[Finding]:
    match a, b:
        case PositionTable(), PositionTable():
            values = [np.asarray(each.values, dtype=np.float64) for each in (a, b)]
            kinds = [_type(each.source) for each in (a, b)]
            found = relate_tables(values[0], values[1], (a.layout, b.layout))
            return [_as_declared(each, kinds) for each in found]
        case LinearBias(), LinearBias():
            return relate_slopes(a.slopes, b.slopes)
        case RelativeBias(), RelativeBias():
            return relate_biases(a.values, b.values)
        case Rotary(), Rotary():
            return list(_of_rotary(a, b))
    raise TypeError((a, b))


def _type(stored: Source | TensorInfo) -> str | None:
    return stored.quantisation.name if stored.quantisation else None


def _as_declared(found: Finding, kinds: Sequence[str | None]) -> Finding:
    """Call values rounded that a file declares so: grids of larger blocks are not looked for."""
    if found.cause != "moved" or not any(kinds):
        return found
    side = "b" if kinds[1] else "a"
    more = {"type": kinds[1] or kinds[0], "side": side}
    return replace(found, cause="quantised", more=more)


def _of_rotary(a: Rotary, b: Rotary) -> Iterator[Finding]:
    if a.axes != b.axes:
        yield Finding("sections", "axes", a.axes, b.axes)
        return
    yield from relate_ladders(_ladder(a), _ladder(b))
    if (a.rotated, a.head_dim) == (b.rotated, b.head_dim):
        yield Finding("columns", "same_columns", a.rotated, a.head_dim)
    elif a.rotated == b.rotated:
        yield Finding("columns", "columns", a.head_dim, b.head_dim, more={"of": a.rotated})
    if a.window and b.window and a.window != b.window:
        yield Finding("window", "window", a.window, b.window)


def _ladder(record: Rotary) -> Ladder:
    return Ladder(
        record.frequencies(), record.attention_factor(), record.unscaled(), record.head_dim,
        record.seen(record.max_positions),
    )  # fmt: skip


def _against_dump(a: _Side, dump: Dump) -> tuple[list[Finding], list[NotCompared]]:
    rotary = [each for each in a.records.get("rotary", {}).values() if isinstance(each, Rotary)]
    if a.dump is not None:
        ladder, neighbours = a.dump.ladder, None
    elif len(rotary) == 1 and rotary[0].axes == 1:
        ladder, neighbours = _ladder(rotary[0]), rotary[0].interleaved
    else:
        reason = "many_ladders" if rotary else "no_rotation"
        about = ", ".join(f"#{name}" for name in a.records.get("rotary", {}) if name)
        return [], [NotCompared("ladder", reason, about)]
    found = list(relate_ladders(ladder, dump.ladder))
    missing = []
    if dump.ladder.factor is None and ladder.factor not in (None, 1.0):
        missing.append(NotCompared("factor", "no_cosines"))
    pairs = relate_query(ladder, dump, neighbours if a.declared else None)
    if pairs is not None:
        found.append(pairs)
    else:
        missing.append(NotCompared("pairs", "no_query" if dump.q is None else "query_tells_not"))
    return found, missing


def _settings(a: _Side, b: _Side) -> Iterator[Finding]:
    """Compare what configurations state beside the ladder."""
    if a.checkpoint is None or b.checkpoint is None:
        return
    one, other = (_stated(side.checkpoint.config) for side in (a, b))  # type: ignore[union-attr]
    if one["sections"] != other["sections"]:
        yield Finding("sections", "sections", one["sections"], other["sections"])
    elif one["order"] != other["order"]:
        yield Finding("sections", "sections", one["order"], other["order"])
    if one["scale"] and other["scale"] and one["scale"] != other["scale"]:
        yield Finding("logits", "logit_scale", one["scale"], other["scale"])


def _stated(config: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"sections": None, "order": None, "scale": None}
    for part in parts_of(config):
        rope = part.config.get("rope_parameters") or part.config.get("rope_scaling")
        if isinstance(rope, Mapping) and rope.get("mrope_section"):
            sizes = settings.wholes(rope, "mrope_section", most=2**12, longest=4)
            found["sections"] = list(sizes) if sizes else None
            found["order"] = "interleaved" if rope.get("mrope_interleaved") else "contiguous"
        scale = settings.number(part.config, "query_pre_attn_scalar", path=part.path)
        found["scale"] = found["scale"] or scale
    return found


# --- queries and keys ---------------------------------------------------------------------------


def _layouts(a: _Side, b: _Side, *, all_layers: bool) -> tuple[list[Finding], list[NotCompared]]:
    """Compare pairs as declared, and the order of the rows that make queries and keys."""
    one, other = (
        next(each for each in side.records["rotary"].values() if isinstance(each, Rotary))
        for side in (a, b)
    )
    declared = tuple(
        record.interleaved if side.declared else None for record, side in ((one, a), (other, b))
    )
    found: dict[tuple[str, str | None], list[tuple[int, Finding]]] = {}
    stored = a.checkpoint is not None and b.checkpoint is not None
    reason = "no_projections" if stored else "no_weights"
    missing = []
    try:
        for layer, kinds, mine, theirs in (
            _projections(a, b, one, other, all_layers=all_layers) if stored else ()
        ):
            order, finding = relate_projections(mine, theirs)
            finding = _as_declared(finding, kinds)
            found.setdefault((finding.cause, order), []).append((layer, finding))
    except PosprobeError as error:
        missing.append(NotCompared("weights", str(error)))
        found = {}
    findings = []
    for each in found.values():
        worst = max((finding for _, finding in each), key=lambda finding: finding.value or 0.0)
        layers = [layer for layer, _ in each]
        findings.append(replace(worst, more={**worst.more, "layers": layers}))
    orders: list[str | None] = [*sorted({order for _, order in found if order})] or [None]
    pairs = [relate_layouts((declared[0], declared[1]), order) for order in orders]
    findings += {each.cause: each for each in pairs if each is not None}.values()
    if not found and not missing:
        missing.append(NotCompared("weights", reason, decides=False))
    if None in pairs:
        missing.append(NotCompared("pairs", "pairs_unknown"))
    return findings, missing


def _projections(
    a: _Side, b: _Side, one: Rotary, other: Rotary, *, all_layers: bool
) -> Iterator[tuple[int, list[str | None], Projections, Projections]]:
    """Yield layers with the types that files declare, and what was read of both."""
    checkpoints = [side.checkpoint for side in (a, b) if side.checkpoint is not None]
    names = [_names(checkpoint) for checkpoint in checkpoints]
    if names[0].keys() != names[1].keys() or not names[0]:
        return
    layers = sorted(names[0])
    if not all_layers:
        layers = sorted({layers[0], layers[len(layers) // 2], layers[-1]})
    whole = all_layers or all(checkpoint.revision is None for checkpoint in checkpoints)
    for layer in layers:
        with stage(f"Comparing queries and keys of layer {layer}"):
            infos = [
                checkpoint.tensors[name]
                for checkpoint, found in zip(checkpoints, names, strict=True)
                for name in found[layer]
            ]
            shapes = [info.shape for info in infos]
            kinds = [_type(info) for info in infos[::2]]
            numbers = max(math.prod(shape) for shape in shapes)
            one_head = not whole or (numbers > MOST and not all_layers)
            if any(len(shape) != 2 or shape[0] % one.head_dim for shape in shapes):
                return
            mine, theirs = (
                _read(checkpoint, found[layer], record, one_head=one_head)
                for checkpoint, found, record in zip(checkpoints, names, (one, other), strict=True)
            )
            yield layer, kinds, mine, theirs


def _read(
    checkpoint: Checkpoint, names: tuple[str, str], record: Rotary, *, one_head: bool
) -> Projections:
    query, key = (
        checkpoint.read_rows(
            name, np.arange(record.head_dim if one_head else checkpoint.tensors[name].shape[0])
        ).astype(np.float64)
        for name in names
    )
    return Projections(query, key, record.head_dim, record.rotated)


def _names(checkpoint: Checkpoint) -> dict[int, tuple[str, str]]:
    """Return by layer the names of the weights that make queries and keys."""
    found = {}
    for name in checkpoint.tensors:
        if (seen := _QUERY.fullmatch(name)) and not _OTHERS.search(seen["before"]):
            stem, _, last = seen["name"].rpartition(".")
            key = f"{seen['before']}{seen['layer']}.{stem}{'.' if stem else ''}{_KEYS[last]}.weight"
            if key in checkpoint.tensors:
                found[int(seen["layer"])] = (name, key)
    return found
