"""Hold a model that runs, layer by layer, against what its file states."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from posprobe.analyses.models.rotations import (
    ObservedRotation,
    RunningLayer,
    RunPlan,
    TurnedVectors,
)
from posprobe.arrays import Floats
from posprobe.checkpoints import Checkpoint
from posprobe.checks.layer_kinds import window_finding
from posprobe.checks.live import (
    DEFAULT_PROBED_POSITIONS,
    MAX_PROBED_POSITION,
    merge_findings,
    rotation_findings,
    stated_pairs,
    trained_length,
)
from posprobe.checks.orders import Comparison, ExpectedWeights, relate_weights
from posprobe.checks.sides import Side, state_layers, view_through_config
from posprobe.checks.sinks import MAX_TENSOR_CHANGE, find_sinks
from posprobe.encodings.rotary import MAX_ANGLE_ERROR_RADIANS
from posprobe.families.configurations import list_sections
from posprobe.layouts import Grid, Layout, Sequence as Line
from posprobe.relations import Finding, NotCompared, relate_tables
from posprobe.schemes import Rotary
from posprobe.tables import PositionTable

#: Windows are looked for in contexts of at most this many tokens, which bounds time and memory.
MAX_WINDOW_CONTEXT = 1100
#: Tokens beyond a stated window that are run, so that one too large is seen.
N_TOKENS_BEYOND_WINDOW = 8
#: Tokens of a context where no window is stated: a window that is there must be seen.
DEFAULT_WINDOW_CONTEXT = 64
#: Positions beyond the trained length at which a rule that depends on the length is run.
MAX_FAR_REACH = 4096
#: Reason that an encoding was not compared, by its kind, of those that no run shows yet.
_UNSEEN_REASONS = {"alibi": "alibi_not_run", "relative": "relative_not_run"}
#: Reasons that projections were not related, so that they are compared by their names.
_UNREAD_REASONS = ("no_projections", "lacks_projections")
#: A column of a layer that turns leaves at least this share of its power to some position; other
#: causes, such as rounding of single precision in the layers before, leave less than a thousandth.
MIN_TURNING_SHARE = 0.01


@dataclass(frozen=True, eq=False)
class RunningModel:
    """A model as it runs.

    Parameters
    ----------
    name
        Its name.
    layers
        Attention layers that were seen, by number.
    checkpoint
        Its weights, under the names of the model.
    added_rows
        ``[n, d]``: rows that a model with a table adds at its first positions, by the table's name.
    refusal
        Why layers were not seen; empty if they were.
    """

    name: str
    layers: Mapping[int, RunningLayer]
    checkpoint: Checkpoint
    added_rows: Mapping[str, Floats]
    refusal: str = ""


def plan_run(a: Side, positions: int | None, n_tokens: int) -> RunPlan | None:
    """Return the positions at which a model of this file is run; None if it does not rotate.

    Parameters
    ----------
    a
        The file.
    positions
        Number of positions; the file's context for None.
    n_tokens
        Tokens of a context.
    """
    rotaries = a.text_rotaries
    if not rotaries:
        return None
    contexts = [rotary.max_positions for rotary in rotaries if rotary.max_positions]
    context = min(contexts, default=DEFAULT_PROBED_POSITIONS)
    last_position = min(positions or context, MAX_PROBED_POSITION) - 1
    trained = min(filter(None, map(trained_length, rotaries)), default=None)
    near_last = max(
        (min(last_position + 1, trained) if trained else last_position + 1) - n_tokens, 1
    )
    far_last, far_reach = None, 0
    if trained:
        far_last = max(last_position, trained + DEFAULT_WINDOW_CONTEXT + n_tokens)
        far_reach = min(far_last + 1 - n_tokens - trained, MAX_FAR_REACH)
    windows = [rotary.window for rotary in rotaries if rotary.window]
    visible = [window for window in windows if window <= MAX_WINDOW_CONTEXT]
    longest = max(visible, default=0) + N_TOKENS_BEYOND_WINDOW
    window_context = min(max(longest, DEFAULT_WINDOW_CONTEXT), context)
    return RunPlan(near_last, far_last, far_reach, window_context)


def compare_with_model(
    a: Side,
    b: RunningModel,
    *,
    all_layers: bool,
    expected_weights: ExpectedWeights | None,
) -> Comparison:
    """Compare a file with the model that runs.

    Parameters
    ----------
    a
        The file.
    b
        The model.
    all_layers, expected_weights
        Same as for `posprobe.checks.compare.compare`.
    """
    findings: list[Finding] = []
    not_compared: list[NotCompared] = []
    if a.checkpoint is not None:
        table_findings, table_refusals = _compare_tables(a, a.checkpoint, b)
        findings += table_findings
        not_compared += table_refusals
        if "rotary" in a.encodings:
            weights = relate_weights(
                a,
                view_through_config(a, b.checkpoint),
                all_layers=all_layers,
                expected_weights=expected_weights,
            )
            # One configuration reads both, so that the pairs it states are equal.
            findings += [f for f in weights.findings if f.cause != "same_pairs"]
            unread = [
                skipped.reason in _UNREAD_REASONS for skipped in weights.not_compared
            ]
            named_weights = _compare_by_name(a.checkpoint, b.checkpoint)
            if any(unread) and named_weights is not None:
                findings.append(named_weights)
            else:
                not_compared += weights.not_compared
    not_compared += _unseen_encodings(a)
    if "rotary" not in a.encodings:
        return Comparison(findings, not_compared)
    if b.refusal:
        not_compared.append(NotCompared("ladder", b.refusal))
        return Comparison(findings, not_compared)
    if a.checkpoint is not None and _compresses_keys(a.checkpoint):
        not_compared.append(NotCompared("layers", "compressed_keys"))
        return Comparison(findings, not_compared)
    rotation_results = _compare_layers(a, b)
    return Comparison(
        findings + rotation_results.findings, not_compared + rotation_results.not_compared
    )


def _unseen_encodings(a: Side) -> Iterator[NotCompared]:
    """Yield the encodings of a file that no run shows, or that it states none."""
    for kind, encodings in a.encodings.items():
        if kind in _UNSEEN_REASONS:
            families = (
                x.family or kind
                for x in encodings.values()
                if not isinstance(x, PositionTable)
            )
            names = ", ".join(dict.fromkeys(families))
            yield NotCompared(kind, _UNSEEN_REASONS[kind], names)
    for scheme in a.unread_schemes:
        yield NotCompared(scheme, "not_run", scheme)
    if not a.encodings and not a.unread_schemes:
        yield NotCompared("encoding", "none_stated", a.name)


def _compresses_keys(checkpoint: Checkpoint) -> bool:
    """Tell whether layers attend to compressed keys, which stand for several positions each."""
    return any(
        "compressed" in str(name)
        for section in list_sections(checkpoint.config)
        for name in section.config.get("layer_types") or ()
    )


def _compare_by_name(a: Checkpoint, b: Checkpoint) -> Finding | None:
    """Return that all weights of attention are equal under their names; None if they are not."""
    names = [name for name in a.tensors if "att" in name and name.endswith(".weight")]
    changes = [_relative_change(a, b, name) for name in names]
    if not names or max(changes) > MAX_TENSOR_CHANGE:
        return None
    return Finding("weights", "identical", value=max(changes))


def _compare_tables(
    a: Side, checkpoint: Checkpoint, b: RunningModel
) -> tuple[list[Finding], list[NotCompared]]:
    """Compare the tables in memory, and the rows that are added, with those of the file."""
    findings: list[Finding] = []
    not_compared = []
    for name, table in a.encodings.get("table", {}).items():
        assert isinstance(table, PositionTable)  # noqa: S101 - the kind says so
        tensor = str(table.source.tensor)
        values = np.asarray(table.values, dtype=np.float64)
        row_findings = list(_relate_memory(table, tensor, checkpoint, b.checkpoint))
        rows = next(
            (r for p, r in b.added_rows.items() if _is_same_name(p, tensor)), None
        )
        if rows is not None and rows.shape[1] == values.shape[1]:
            n_rows = min(len(values), len(rows))
            run_findings = relate_tables(values[:n_rows], rows[:n_rows])
            row_findings += [finding for finding in run_findings if not finding.alike]
        elif row_findings:
            not_compared.append(NotCompared("rows", "rows_not_run", decides=False))
        if not row_findings:
            not_compared.append(NotCompared("rows", "table_not_seen", name))
        findings += [replace(finding, part=name) for finding in _distinct(row_findings)]
    return findings, not_compared


def _relate_memory(
    table: PositionTable, tensor: str, a: Checkpoint, b: Checkpoint
) -> Sequence[Finding]:
    """Relate the table in memory, without the rows that are no positions."""
    name_b = next((name for name in b.tensors if _is_same_name(name, tensor)), None)
    if name_b is None or tensor not in a.tensors:
        return ()
    values = np.asarray(table.values, dtype=np.float64)
    shape = a.tensors[tensor].shape
    n_rows = int(np.prod(shape)) // values.shape[1]
    if shape[-1] != values.shape[1] or n_rows < len(values):
        return ()
    memory = (
        b.read(name_b).values.astype(np.float64).reshape(-1, b.tensors[name_b].shape[-1])
    )
    memory = memory[_position_rows(table, len(memory), n_rows)]
    side = math.isqrt(len(memory))
    is_square = isinstance(table.layout, Grid) and side**2 == len(memory)
    layout: Layout = Grid(side, side) if is_square else Line(len(memory))
    if len(memory) == len(values):
        layout = table.layout
    return relate_tables(values, memory, (table.layout, layout))


def _position_rows(
    table: PositionTable, n_stored_rows: int, n_file_rows: int
) -> list[int]:
    """Return the rows in memory that are positions, if those of the file are left out there too."""
    others = {row.row for row in table.dropped} | {row.row for row in table.prefix_rows}
    if n_file_rows - len(others) != len(table):
        return list(range(n_file_rows - len(table), n_stored_rows))
    return [row for row in range(n_stored_rows) if row not in others]


def _distinct(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of different causes."""
    return list({(finding.what, finding.cause): finding for finding in findings}.values())


def _is_same_name(path: str, tensor: str) -> bool:
    """Tell whether a name in memory is that in a file, up to what precedes it."""
    names = sorted((path, tensor), key=len)
    return names[1] == names[0] or names[1].endswith(f".{names[0]}")


def _compare_layers(a: Side, b: RunningModel) -> Comparison:
    """Compare each layer's rotation, window and sinks."""
    findings: list[Finding] = []
    not_compared: list[NotCompared] = []
    expected = state_layers(a, max(b.layers, default=-1) + 1)
    kinds = {rotary.layers: rotary for rotary in a.text_rotaries}
    still_layers, turning_layers, unlike_layers = [], [], []
    for number, layer in sorted(b.layers.items()):
        rotary = expected.get(number)
        if not layer.rotations:
            unlike_layers.append(number)
            continue
        if rotary is None:
            if _turns(layer):
                turning_layers.append(number)
            continue
        other_rotaries = {
            name: kind for name, kind in kinds.items() if kind is not rotary
        }
        layer_findings = list(_layer_findings(rotary, layer, other_rotaries))
        if any(finding.cause == "rotating_layers" for finding in layer_findings):
            still_layers.append(number)
            continue
        if layer.rotations["queries"].factor is None and rotary.attention_factor() != 1:
            not_compared.append(NotCompared("factor", "factor_not_seen"))
        part = rotary.layers if len(kinds) > 1 else ""
        findings += [
            replace(f, part=part, more={**f.more, "layers": [number]})
            for f in layer_findings
        ]
        not_compared += _unseen_windows(rotary, layer)
    if still_layers or turning_layers:
        findings.append(
            _rotating_finding(a, b, set(expected), still_layers, turning_layers)
        )
    if unlike_layers:
        not_compared.append(
            NotCompared("layers", "inputs_differ", ", ".join(map(str, unlike_layers)))
        )
    missing = sorted(set(expected) - set(b.layers))
    if missing:
        not_compared.append(
            NotCompared("layers", "layers_not_seen", ", ".join(map(str, missing)))
        )
    for result in _sink_findings(a, b):
        if isinstance(result, Finding):
            findings.append(result)
        else:
            not_compared.append(result)
    return Comparison(merge_findings(findings), list(dict.fromkeys(not_compared)))


def _rotating_finding(
    a: Side,
    b: RunningModel,
    expected: set[int],
    still_layers: list[int],
    turning_layers: list[int],
) -> Finding:
    """Return the finding that layers do not rotate as stated."""
    fastest = max(float(rotary.frequencies().max()) for rotary in a.text_rotaries)
    return Finding(
        "layers",
        "rotating_layers",
        sorted(expected & set(b.layers)),
        sorted({*expected, *turning_layers} - {*still_layers}),
        first_distance=MAX_ANGLE_ERROR_RADIANS / fastest,
        more={"layers": sorted([*still_layers, *turning_layers])},
    )


def _turns(layer: RunningLayer) -> bool:
    """Tell whether any column of a layer's queries or keys turns."""
    return any(
        rotation.samples.column_changes().max()
        > max(MIN_TURNING_SHARE, rotation.samples.max_residual_share)
        for rotation in layer.rotations.values()
    )


def _layer_findings(
    rotary: Rotary, layer: RunningLayer, other_rotaries: Mapping[str, Rotary]
) -> Iterator[Finding]:
    """Yield what one layer does against what is stated of it."""
    for rotations in (layer.rotations, layer.far_rotations):
        by_side: dict[str, list[Finding]] = {
            side: rotation_findings(rotary, rotation, other_rotaries)
            for side, rotation in rotations.items()
        }
        counts = Counter(
            f.cause for side_findings in by_side.values() for f in side_findings
        )
        for side, side_findings in by_side.items():
            for finding in side_findings:
                is_one_side = not finding.alike and counts[finding.cause] == 1
                more = {"projection": side} if is_one_side else {}
                yield replace(finding, more={**finding.more, **more})
    yield from _window_findings(rotary, layer)
    if layer.axes and rotary.along_axes():
        yield from _axis_findings(rotary, layer.rotations["queries"], layer.axes)


def _window_findings(rotary: Rotary, layer: RunningLayer) -> Iterator[Finding]:
    context = layer.window_context
    if not context or (rotary.window and rotary.window >= context):
        return
    if rotary.window == layer.window:
        if rotary.window:
            yield Finding("window", "same_window", rotary.window, layer.window)
        return
    yield window_finding(rotary.window, layer.window)


def _unseen_windows(rotary: Rotary, layer: RunningLayer) -> Iterator[NotCompared]:
    if layer.window_context and (rotary.window or 0) >= layer.window_context:
        details = f"{rotary.window} | {layer.window_context}"
        yield NotCompared("window", "window_too_long", details, decides=False)


def _axis_findings(
    rotary: Rotary, observed: ObservedRotation, axes: Sequence[TurnedVectors]
) -> Iterator[Finding]:
    """Compare which pairs turn along each axis of positions."""
    pairs = stated_pairs(
        rotary, axes[0].width, None, is_regathered=observed.is_regathered
    )
    expected = [*rotary.along_axes().values()]
    axis_ladders = []
    for samples in axes:
        turns, _ = samples.measure_turns(*pairs.columns)
        limit = samples.min_turn
        axis_ladders.append(
            pairs.frequencies[np.abs(np.angle(turns)).max(axis=0) > limit]
        )
    last_position = max(int(samples.shifts.max()) for samples in axes)
    limit = axes[0].min_turn
    visible = [omega[omega * last_position > 2 * limit] for omega in expected]
    are_equal = all(
        np.isin(visible_omega, omega).all() and np.isin(omega, stated_omega).all()
        for visible_omega, stated_omega, omega in zip(
            visible, expected, axis_ladders, strict=True
        )
    )
    if are_equal:
        yield Finding("sections", "same_sections", [*rotary.sections], [*rotary.sections])
        return
    fastest = MAX_ANGLE_ERROR_RADIANS / float(pairs.frequencies.max())
    sizes = [len(omega) for omega in axis_ladders]
    a, b = [*rotary.sections], sizes
    yield Finding("sections", "sections", a, b, first_distance=fastest)


def _sink_findings(a: Side, b: RunningModel) -> Iterator[Finding | NotCompared]:
    """Compare learned sinks: those that the file stores, and those that attention uses."""
    if a.checkpoint is None:
        return
    stored = find_sinks(a.checkpoint)
    for number, layer in sorted(b.layers.items()):
        more = {"layers": [number]}
        if number in stored and layer.has_sinks is False:
            # A sink takes part of the attention of the first token already.
            yield Finding("sinks", "sinks_dropped", first_distance=0.0, more=more)
        elif number not in stored and layer.has_sinks:
            yield NotCompared("sinks", "sinks_unknown")
        elif number in stored and layer.has_sinks:
            change = _relative_change(a.checkpoint, b.checkpoint, stored[number])
            if not math.isfinite(change):  # it has another name or shape in memory
                yield NotCompared("sinks", "sinks_unknown")
                continue
            cause = "sinks_changed" if change > MAX_TENSOR_CHANGE else "same_sinks"
            distance = 0.0 if cause == "sinks_changed" else None
            yield Finding(
                "sinks", cause, value=change, first_distance=distance, more=more
            )


def _relative_change(a: Checkpoint, b: Checkpoint, name: str) -> float:
    """Return the relative distance of a tensor in memory to that of the file."""
    name_b = next((other for other in b.tensors if _is_same_name(other, name)), None)
    if name_b is None:
        return math.inf
    values_a, values_b = a.read(name).values, b.read(name_b).values
    if values_a.shape != values_b.shape:
        return math.inf
    size = float(np.linalg.norm(values_a)) or 1.0
    return float(np.linalg.norm(values_b - values_a)) / size
