"""All heads of a model by their weights alone: nothing is run, and no PyTorch is needed."""

from __future__ import annotations

from posprobe.analyses.head_logits import HeadLogits, HeadsByLayer, head_logits
from posprobe.families.layers import Content, TableInModel, open_model, read_heads


def measure_heads(
    reference: str,
    *,
    content: Content = "mean",
    heads: int | None = None,
    rows: slice | None = None,
    grid: tuple[int, int] | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> HeadsByLayer:
    """Measure what the heads of every layer compute from positions, one layer at a time.

    The table and what stands beside it are read once, the weights of each layer when it is its
    turn; see `posprobe.families.effective_table` for the rows that meet them.

    Parameters
    ----------
    reference, content, heads, rows, grid, revision, offline
        As for `posprobe.families.load_heads`.

    Raises
    ------
    PosprobeError
        As for `posprobe.families.load_heads`.

    Examples
    --------
    >>> import posprobe as pp
    >>> heads = pp.forward.measure_heads("sample:digits-vit")
    >>> sorted(heads.layers)
    [0, 1]
    >>> heads.layers[0].curves.shape
    (4, 15, 15)
    """
    model = open_model(
        reference, content=content, rows=rows, grid=grid, revision=revision, offline=offline
    )
    notes = model.notes
    if model.rule.norm:
        notes = (*notes, "the LayerNorm before each layer's attention is applied to the rows")
    if model.rule.shared:
        notes = (*notes, f"all {model.layers} layers share their weights: layer 0 stands for all")
    elif model.layers > 1:
        notes = (*notes, "above layer 0 rows follow the direct path: the layers below are left out")
    numbers = range(1 if model.rule.shared else model.layers)
    return HeadsByLayer({number: _measured(model, number, heads) for number in numbers}, notes)


def _measured(model: TableInModel, layer: int, heads: int | None) -> HeadLogits:
    found = read_heads(model, layer, heads)
    return head_logits(
        found.table, found.w_q, found.w_k, found.b_q, found.b_k,
        heads=found.heads, scale=found.scale, causal=found.causal,
    )  # fmt: skip
