"""Loading: from a reference to a `PositionTable`, or to the schemes without a table."""

from __future__ import annotations

from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from posprobe import encodings, samples
from posprobe.checkpoints import Checkpoint, TensorInfo, open_local
from posprobe.checkpoints.files import check_link_inside
from posprobe.checkpoints.local import known_formats
from posprobe.encodings import fixed_formula
from posprobe.errors import (
    AmbiguousTable,
    InvalidCheckpoint,
    InvalidTable,
    NoPositionTable,
    UnknownReference,
    UsageError,
)
from posprobe.families.architectures import TableRule
from posprobe.families.configurations import list_sections, translate_config
from posprobe.families.find import (
    StoredEncoding,
    find_encodings,
    pick_encodings,
)
from posprobe.families.listing import describe_no_table, list_encodings
from posprobe.families.relative import read_relative
from posprobe.families.rotary import LinearSpec
from posprobe.families.rows import (
    Rows,
    build_source,
    flatten_rows,
    is_long,
    read_positions,
    resolve_rows,
)
from posprobe.families.witnesses import note_square
from posprobe.layouts import (
    Sequence,
    describe_layout,
    make_grid,
    slice_layout,
    split_note,
)
from posprobe.progress import stage
from posprobe.reference import Reference, name_source_in_errors, parse_reference
from posprobe.schemes import (
    LinearBias,
    RelativeBias,
    Rotary,
    RotarySpec,
    Scheme,
    Schemes,
)
from posprobe.settings import contradiction_error
from posprobe.sources import Source
from posprobe.tables import PositionTable

#: Largest distance for which buckets are evaluated.
MAX_BUCKET_DISTANCE = 2**20
#: Keys that give some heads, or parts of heads, another width.
_HEAD_WIDTH_KEYS = {"qk_rope_head_dim", "global_head_dim", "per_layer_config"}


def build_scheme(
    checkpoint: Checkpoint, encoding: StoredEncoding, name: str, reference: str
) -> Scheme:
    """Build the scheme of an encoding without a table.

    Parameters
    ----------
    checkpoint, encoding
        Checkpoint, and encoding as found by `find_encodings`.
    name
        Short name for titles.
    reference
        Reference as typed.

    Raises
    ------
    InvalidCheckpoint
        If what is stored or configured contradicts itself.
    NoPositionTable
        If the checkpoint stores none of its numbers.
    """
    if encoding.problem:
        raise InvalidCheckpoint(f"{checkpoint.location}: {encoding.problem}")
    if encoding.relative is not None:
        return read_relative(checkpoint, encoding.relative, name, reference)
    source = Source(reference, checkpoint.location, checkpoint.revision)
    spec = encoding.spec
    try:
        match spec:
            case RotarySpec():
                _check_heads(checkpoint, spec)
                return Rotary(
                    name=name, source=source, family=encoding.family, **vars(spec)
                )
            case LinearSpec():
                slopes = (
                    encodings.alibi_slopes(spec.heads, bias_max=spec.most) * spec.scale
                )
                return LinearBias(
                    slopes,
                    name,
                    source,
                    spec.max_positions,
                    family=encoding.family,
                    notes=spec.notes,
                    unread_keys=spec.unread_keys,
                )
    except UsageError as error:
        raise InvalidCheckpoint(f"{checkpoint.location}: {error}") from error
    if encoding.scheme == "fixed":
        raise NoPositionTable(
            f"{checkpoint.location}: {encoding.evidence}. The reference "
            "sinusoidal:NxD (or sincos2d:HxWxD) shows it; the checkpoint "
            "stores none of it."
        )
    raise NoPositionTable(
        f"{checkpoint.location}: {encoding.scheme} positions "
        f"({encoding.evidence}) whose numbers the checkpoint does not "
        "state. Add its config.json."
    )


def _check_heads(checkpoint: Checkpoint, spec: RotarySpec) -> None:
    """Refuse a head width that does not divide the rows of the stored queries."""
    if (
        len(list_sections(checkpoint.config)) > 1
        or _HEAD_WIDTH_KEYS & checkpoint.config.keys()
    ):
        return  # the queries may belong to another section or have several widths
    for name in checkpoint.tensors:
        if name.endswith(".q_proj.weight"):
            info = checkpoint.tensors[name]
            if info.shape and info.shape[0] % spec.head_dim:
                width, rows = spec.head_dim, info.shape[0]
                message = f"that a head is {width} wide, which does not divide {rows}"
                raise contradiction_error(info.subject, message)
            return


def build_formula_scheme(source: str) -> Scheme:
    """Build the scheme of a formula reference such as ``rotary:4096x128``.

    ``t5:LENGTHxBUCKETS`` is one head whose bias falls by one from bucket to bucket: it shows which
    offsets T5's buckets distinguish.

    Raises
    ------
    UnknownReference, UsageError
        If the reference names no formula, or has invalid sizes or options.
    NoPositionTable
        If the formula is a table, which `load` builds.
    """
    name, (length, width, *_), options = encodings.parse_formula(source)
    if encodings.FORMULAS[name].build:
        raise NoPositionTable(
            f"{source}: it is a table of positions and no other encoding."
        )
    formula_source = Source(reference=source, resolved=source)
    match name:
        case "rotary":
            options |= {"max_positions": length, "training_length": length}
            return Rotary(width, source, formula_source, family="formula", **options)
        case "alibi":
            slopes = encodings.alibi_slopes(width, **options)
            return LinearBias(slopes, source, formula_source, length, family="formula")
    max_distance = options.get("max_distance", 128)
    if max_distance > MAX_BUCKET_DISTANCE:
        raise UsageError(f"{source}: max goes up to {MAX_BUCKET_DISTANCE}.")
    offsets = np.arange(-max_distance, max_distance + 1)
    bidirectional = options.get("bidirectional", True)
    bucket = encodings.t5_buckets(offsets, buckets=width, **options)
    side_bucket = bucket % (width // 2) if bidirectional else bucket
    return RelativeBias(
        -side_bucket[None].astype(np.float64),
        Sequence(length),
        source,
        formula_source,
        family="formula",
        causal=not bidirectional,
        computed=True,
    )


def load(
    reference: str | PathLike[str],
    *,
    rows: slice | None = None,
    tensor: str | None = None,
    grid: tuple[int, ...] | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> PositionTable:
    """Load the position table that a reference names, reading only that tensor.

    Parameters
    ----------
    reference
        ``SOURCE[@REVISION][#TABLE]``: a path, ``sample:NAME``, a formula such as
        ``sinusoidal:512x768``, or a Hub id.
    rows
        Positions to keep; other rows may contain NaN.
    tensor
        Name of a tensor to read, with all of its rows, as the position table.
    grid
        ``(height, width)`` of the patches, or ``(frames, height, width)`` of those of a video, if
        the checkpoint does not state it; rows before them belong to special tokens.
    revision
        Branch, tag or commit of a Hub repository.
    offline
        Use local files only.

    Returns
    -------
    PositionTable
        Values ``[n, d]`` in the stored precision.

    Raises
    ------
    UnknownReference, Unreachable
        If the reference cannot be resolved or reached.
    InvalidCheckpoint, InvalidTable
        If it is damaged or not a position table.
    AmbiguousTable
        If there are several tables and none was chosen.
    NoPositionTable
        If the checkpoint has none.

    Examples
    --------
    The positions that all-MiniLM-L6-v2 learned, one of the tables that ship with the package:

    >>> import posprobe as pp
    >>> table = pp.load("sample:all-minilm-l6-v2")
    >>> len(table), table.dim, table.kind
    (512, 384, 'learned')
    >>> table[1:128].rows
    (1, 128)
    """
    parsed = parse_reference(reference)
    if grid is not None:
        make_grid(grid, parsed.text)
    if is_formula(parsed):
        if tensor or grid or revision or parsed.table:
            raise UsageError(
                f"{reference}: a formula has no tensor, grid, revision or #TABLE."
            )
        table = encodings.build_formula(parsed.source)
        return table[rows] if rows else table
    with name_source_in_errors(parsed.source):
        checkpoint = open_reference(parsed, revision=revision, offline=offline)
        stored_encodings = () if tensor is not None else find_encodings(checkpoint)
        encoding = choose_table(checkpoint, parsed, stored_encodings, tensor, grid)
        table = read_table(checkpoint, encoding, parsed, rows)
    other_schemes = _note_other_schemes(stored_encodings, parsed.source)
    return replace(table, notes=(*table.notes, *checkpoint.notes, *other_schemes))


def load_schemes(
    reference: str | PathLike[str], *, revision: str | None = None, offline: bool = False
) -> tuple[Scheme, ...]:
    """Load encodings without a table: relative, rotary or ALiBi.

    Parameters
    ----------
    reference
        Reference, as for `load`; ``#NAME`` picks one scheme, as `inspect` names it. Formulas are
        ``rotary:4096x128`` (length x width of a head), ``alibi:1024x12`` (length x heads) and
        ``t5:512x32`` (length x buckets).
    revision, offline
        Same as for `load`.

    Raises
    ------
    UnknownReference, Unreachable
        If the reference cannot be resolved or reached.
    InvalidCheckpoint
        If what is stored or configured contradicts itself.
    NoPositionTable
        If there is no such encoding.

    Examples
    --------
    >>> import posprobe as pp
    >>> (rotary,) = pp.load_schemes("rotary:4096x64,base=500000")
    >>> rotary.head_dim, rotary.base, rotary.max_positions
    (64, 500000.0, 4096)
    >>> (alibi,) = pp.load_schemes("alibi:512x4")
    >>> alibi.slopes.tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    parsed = parse_reference(reference)
    if is_formula(parsed):
        if revision or parsed.table:
            raise UsageError(f"{reference}: a formula has no revision and no #NAME.")
        return Schemes((build_formula_scheme(parsed.source),))
    with name_source_in_errors(parsed.source):
        return _load_schemes(
            parsed, open_reference(parsed, revision=revision, offline=offline)
        )


def _load_schemes(parsed: Reference, checkpoint: Checkpoint) -> tuple[Scheme, ...]:
    all_encodings = find_encodings(checkpoint)
    scheme_encodings = tuple(
        encoding for encoding in all_encodings if encoding.rule is None
    )
    if all_encodings and not scheme_encodings:
        raise NoPositionTable(
            f"{parsed.text}: it has a position table and no other encoding: use posprobe.load."
        )
    scheme_encodings = (
        pick_encodings(checkpoint, scheme_encodings, parsed) if scheme_encodings else ()
    )
    if not scheme_encodings:
        raise NoPositionTable(describe_no_table(checkpoint))
    schemes, problems = [], []
    for encoding in scheme_encodings:
        name = (
            _title(parsed, encoding)
            if parsed.table or len(scheme_encodings) == 1
            else encoding.name
        )
        try:
            schemes.append(build_scheme(checkpoint, encoding, name, parsed.text))
        except NoPositionTable as error:
            problems.append(error)
    if not schemes:
        raise problems[0]
    return Schemes(schemes)


def inspect(
    reference: str | PathLike[str], *, revision: str | None = None, offline: bool = False
) -> list[dict[str, Any]]:
    """List the positional encodings behind a reference, from header and configuration alone.

    Returns
    -------
    list
        One record per encoding: ``scheme``, ``name``, ``tensor``, ``shape``, ``dtype``, ``family``,
        ``why``, ``positions``, ``layout``, ``prefix_rows``, ``dropped_rows``, ``parameters`` (of
        rotary and linear positions), ``problem``, ``unused`` (the reason why a stored table is
        never read), ``format`` of the file, ``quantisation`` by name, ``notes`` on the file.

    Raises
    ------
    UnknownReference, Unreachable, InvalidCheckpoint
        As for `load`.
    """
    return inspect_reference(reference, revision=revision, offline=offline)[0]


def inspect_reference(
    reference: str | PathLike[str], *, revision: str | None = None, offline: bool = False
) -> tuple[list[dict[str, Any]], str]:
    """Return the records of `inspect`, and what to say where there are none."""
    parsed = parse_reference(reference)
    if is_formula(parsed):
        formula = _describe_encoding(_describe_formula(parsed.source))
        return [formula | {"format": None, "notes": []}], ""
    with name_source_in_errors(parsed.source):
        checkpoint = open_reference(parsed, revision=revision, offline=offline)
        encodings = pick_encodings(checkpoint, list_encodings(checkpoint), parsed)
    file_facts = {"format": checkpoint.format or None, "notes": [*checkpoint.notes]}
    records = [_describe_encoding(encoding) | file_facts for encoding in encodings]
    return records, "" if records else describe_no_table(checkpoint)


def _describe_formula(source: str) -> StoredEncoding:
    try:
        table = encodings.build_formula(source)
    except NoPositionTable:
        return StoredEncoding(build_formula_scheme(source).scheme, "", "the formula")
    return StoredEncoding("fixed", "", "the formula", rows=Rows(table.layout))


def _describe_encoding(encoding: StoredEncoding) -> dict[str, Any]:
    info, rows = encoding.tensor, encoding.rows
    return {
        "scheme": encoding.scheme,
        "name": encoding.name,
        "tensor": info.name if info else None,
        "tensors": [tensor.name for tensor in encoding.tensors],
        "shape": list(info.shape) if info else None,
        "dtype": info.dtype if info else None,
        "quantisation": info.quantisation.name if info and info.quantisation else None,
        "file": info.file if info else None,
        "family": encoding.family,
        "why": encoding.evidence,
        "positions": rows.layout.size if rows else None,
        "layout": describe_layout(rows.layout) if rows else None,
        "prefix_rows": [asdict(row) for row in rows.prefix] if rows else [],
        "dropped_rows": [asdict(row) for row in rows.dropped] if rows else [],
        "parameters": asdict(encoding.spec) if encoding.spec else None,
        "problem": encoding.problem,
        "unused": encoding.unused,
    }


def open_reference(
    reference: Reference, *, revision: str | None = None, offline: bool = False
) -> Checkpoint:
    """Open the checkpoint behind a reference; nothing but headers and configuration is read.

    Raises
    ------
    UnknownReference, Unreachable, InvalidCheckpoint
        As for `load`.
    """
    source = reference.source
    if revision and reference.revision and revision != reference.revision:
        raise UsageError(
            f"{reference.text}: `revision={revision!r}` contradicts the reference."
        )
    if revision and (reference.is_path or ":" in source):
        raise UsageError(
            f"{source}: only Hub repositories have revisions. Leave out `revision`."
        )
    if reference.is_path:
        checkpoint = translate_config(open_local(reference.path, reference.table))
        if not checkpoint.tensors and not find_encodings(checkpoint):
            raise InvalidCheckpoint(
                f"{reference.path}: contains no weights in a known format, "
                "and config.json alone states no positions. Known are "
                f"{known_formats()}."
            )
        return checkpoint
    prefix, colon, name = source.partition(":")
    if colon and prefix == "sample":
        # The location of a sample is its name, not the folder of the installed package.
        return replace(open_local(samples.sample_path(name)), location=source)
    if colon:
        raise UnknownReference(
            f"{source}: unknown prefix. Use sample:NAME or a formula such as sinusoidal:512x768."
        )
    from posprobe.checkpoints.hub import open_hub

    commit = revision or reference.revision
    return translate_config(
        open_hub(source, commit, offline=offline, model=reference.table)
    )


def read_table(
    checkpoint: Checkpoint,
    encoding: StoredEncoding,
    reference: Reference,
    row_range: slice | None = None,
) -> PositionTable:
    """Read the positions of one table, or those in ``row_range``.

    Raises
    ------
    InvalidCheckpoint, InvalidTable
        If the positions are unknown, or the values are not finite floats.
    """
    info = encoding.tensor
    if info is None or encoding.rule is None:
        raise NoPositionTable(
            f"{checkpoint.location}: {encoding.scheme} positions have no table."
        )
    rows = encoding.rows
    if rows is None:
        raise InvalidCheckpoint(
            encoding.problem or f"{info.file}: {info.name} cannot be read."
        )
    name = _title(reference, encoding)
    begin, end, layout = slice_layout(
        rows.layout, row_range or slice(None), reference.text
    )
    notes, digest = rows.notes, None
    if row_range is not None and is_long(info, rows) and not info.quantisation:
        positions, prefix = read_positions(checkpoint, info, rows, begin, end)
        full_layout = layout if isinstance(rows.layout, Sequence) else rows.layout
        formula = fixed_formula(positions, full_layout, info.dtype, begin=begin)
        notes = (
            *notes,
            "only these rows of a long table were read, its digest was not taken",
        )
    else:
        stored = checkpoint.read(info.name)
        info = stored.info
        digest, values = stored.sha256, flatten_rows(stored.values, rows)
        if rows.tail is not None:
            # The digest is that of one tensor, and the table is not that tensor.
            later_rows = flatten_rows(checkpoint.read(rows.tail.tensor).values, rows)
            digest = None
            values = np.concatenate(
                [values[: rows.tail.start], later_rows[rows.tail.start :]]
            )
        positions = (
            np.delete(values, rows.excluded_rows, axis=0)
            if rows.excluded_rows
            else values
        )
        step = info.quantisation.step if info.quantisation else None
        formula = fixed_formula(positions, rows.layout, info.dtype, step or 0.0)
        positions, prefix = positions[begin:end], values[[row.row for row in rows.prefix]]
    is_unknown = encoding.family is None and isinstance(rows.layout, Sequence)
    if is_unknown and not formula and len(positions) == rows.layout.size:
        notes = (*notes, *note_square(positions))
    notes = (*notes, *_formula_notes(formula, encoding), *split_note(rows.layout, layout))
    return PositionTable(
        positions,
        layout,
        name=name,
        source=build_source(checkpoint, reference.text, info, digest),
        kind="fixed" if formula else "learned",
        family=encoding.family,
        prefix=prefix if rows.prefix else None,
        prefix_rows=rows.prefix,
        dropped=rows.dropped,
        start=begin,
        notes=notes,
    )


def _formula_notes(formula: str | None, encoding: StoredEncoding) -> tuple[str, ...]:
    """Return the note on a table that follows a formula, or should."""
    if formula:
        return (f"the values follow a formula: {formula}",)
    if encoding.scheme == "fixed":
        return ("the architecture fills this table from a formula; its values differ",)
    return ()


def is_formula(reference: Reference) -> bool:
    """Tell whether a reference is a formula."""
    prefix, colon, _ = reference.source.partition(":")
    has_formula_name = bool(colon) or reference.source in encodings.FORMULAS
    return has_formula_name and prefix != "sample" and not reference.is_path


def _title(reference: Reference, encoding: StoredEncoding) -> str:
    name = _title_of_source(reference)
    return f"{name}#{encoding.name}" if encoding.name and reference.table else name


def title_of_reference(reference: str) -> str:
    """Return the name that titles have for a reference, before anything is read.

    A reference that names its table by the tensor is titled with the table's short name instead.
    """
    parsed = parse_reference(reference)
    table = f"#{parsed.table}" if parsed.table else ""
    return _title_of_source(parsed) + table


def _title_of_source(reference: Reference) -> str:
    if reference.is_path:
        return Path(reference.source).resolve().name
    return reference.source.removeprefix("sample:")


def _note_other_schemes(
    stored_encodings: tuple[StoredEncoding, ...], source: str
) -> tuple[str, ...]:
    """Return notes about the schemes that a checkpoint has beside a table."""
    by_scheme = {
        encoding.scheme: encoding
        for encoding in reversed(stored_encodings)
        if encoding.rule is None
    }
    return tuple(
        f"the checkpoint has {scheme} positions too"
        + (f", which could not be read: {encoding.problem}" if encoding.problem else "")
        + f". `posprobe inspect {source}` lists them"
        for scheme, encoding in by_scheme.items()
    )


def choose_table(
    checkpoint: Checkpoint,
    reference: Reference,
    stored_encodings: tuple[StoredEncoding, ...],
    tensor: str | None = None,
    grid: tuple[int, ...] | None = None,
) -> StoredEncoding:
    """Choose the table that a reference names among stored encodings, or by its tensor's name.

    Parameters
    ----------
    checkpoint
        Checkpoint with the table.
    reference
        Reference as the user typed it, which may name a table.
    stored_encodings
        Results of `find_encodings`; ignored where ``tensor`` names one.
    tensor, grid
        Same as for `load`.

    Raises
    ------
    UnknownReference, AmbiguousTable, NoPositionTable, InvalidCheckpoint, InvalidTable
        As for `load`.
    """
    if tensor is not None:
        encoding = _choose_tensor(checkpoint, tensor, reference)
    else:
        encoding = _choose_named(checkpoint, reference, stored_encodings)
    if grid is None or encoding.tensor is None or encoding.rule is None:
        return encoding
    rule = replace(encoding.rule, grid=True, tokens=encoding.rule.tokens or "stored")
    rows = resolve_rows(
        checkpoint, encoding.tensor, rule, make_grid(grid, reference.text)
    )
    return replace(encoding, rows=rows)


def _choose_named(
    checkpoint: Checkpoint,
    reference: Reference,
    stored_encodings: tuple[StoredEncoding, ...],
) -> StoredEncoding:
    tables = [encoding for encoding in stored_encodings if encoding.rule is not None]
    if reference.table and reference.table in [
        e.name for e in stored_encodings if e.rule is None
    ]:
        raise NoPositionTable(describe_no_table(checkpoint))
    if reference.table and reference.table not in checkpoint.models:
        tables = [
            t for t in tables if reference.table in (t.name, _stored_name(t.tensor))
        ]
        if not tables:
            raise UnknownReference(
                f"{reference.text}: it has no table called {reference.table!r}. "
                + _list_tables(stored_encodings, reference.source)
            )
    if not tables:
        raise NoPositionTable(describe_no_table(checkpoint))
    if len(tables) > 1:
        raise AmbiguousTable(
            f"{reference.source}: contains {len(tables)} position tables. "
            + _list_tables(stored_encodings, reference.source)
        )
    return tables[0]


def _stored_name(info: TensorInfo | None) -> str | None:
    """Return a tensor's name; None for a ``.npy`` file, which has no names."""
    return None if info is None or info.file.endswith(".npy") else info.name


def _choose_tensor(
    checkpoint: Checkpoint, tensor: str, reference: Reference
) -> StoredEncoding:
    if reference.table:
        raise UsageError(
            f"{reference.text}: `tensor` and #TABLE both pick a table. Use one of them."
        )
    info = checkpoint.tensors.get(tensor)
    if info is None:
        raise UnknownReference(
            f"{checkpoint.location}: it has no tensor {tensor}. `posprobe "
            "inspect` lists the position tables."
        )
    if len(info.shape) < 2:
        raise InvalidTable(
            f"{info.subject}: a position table has two dimensions, "
            "positions and width. `posprobe inspect` lists the candidates."
        )
    rule = TableRule(())
    rows = replace(
        resolve_rows(checkpoint, info, rule),
        notes=("named by the user: every stored row is taken as a position, in order",),
    )
    return StoredEncoding("learned", "", "named by the user", info, rule, rows=rows)


def _list_tables(stored_encodings: tuple[StoredEncoding, ...], source: str) -> str:
    tables = [
        f"{source}{f'#{encoding.name}' if encoding.name else ''} "
        f"({info.name}, {' x '.join(map(str, info.shape))}, {info.dtype})"
        for encoding in stored_encodings
        if encoding.rule is not None and (info := encoding.tensor)
    ]
    return f"It has {', '.join(tables) or 'none'}; `tensor=NAME` reads any tensor as a table."


def find_model_source(reference: Reference) -> str:
    """Return the folder or Hub id by which libraries find the model behind a reference.

    Raises
    ------
    UnknownReference
        If no model can be built from the path, it may not be read, or there is no such sample.
    UsageError
        If the reference is a formula.
    InvalidCheckpoint
        If the folder contains pipes or devices, which no library expects, or a link that leads out
        of it.
    """
    if not reference.is_path:
        prefix, colon, name = reference.source.partition(":")
        if colon and prefix != "sample":
            raise UsageError(
                f"{reference.text}: a formula is not a model that can be run."
            )
        return str(samples.sample_path(name)) if colon else reference.source
    path = reference.path
    try:
        if not (path / "config.json").is_file():
            raise UnknownReference(
                f"{reference.text}: it is no folder, or has no config.json, "
                "so no model can be built from it."
            )
        for entry in path.iterdir():
            check_link_inside(entry, path)
            if entry.exists() and not entry.is_dir() and not entry.is_file():
                raise InvalidCheckpoint(
                    f"{entry}: not a regular file but a pipe or device. Put the file there."
                )
        (path / "config.json").open("rb").close()
    except PermissionError as error:
        raise UnknownReference(
            f"{error.filename or path}: permission denied. Check that you may read it."
        ) from error
    return str(path)


def load_any(reference: str, **load_options: Any) -> PositionTable | tuple[Scheme, ...]:
    """Load the table that a reference names, or else its schemes.

    Parameters and errors are those of `posprobe.load` and `posprobe.load_schemes`.
    """
    with stage(f"Reading {reference}"):
        try:
            return load(reference, **load_options)
        except NoPositionTable:
            if load_options.get("tensor") or load_options.get("grid"):
                raise
            scheme_options = {
                key: load_options[key]
                for key in ("revision", "offline")
                if key in load_options
            }
            return load_schemes(reference, **scheme_options)
