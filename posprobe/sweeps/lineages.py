"""Which tables of a sweep come from one another: groups, found in one pass over all."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from posprobe.sweeps.fingerprints import NUMBERS, Fingerprint, likeness

#: Lineages of tables of one width that later tables are held against, which bounds time and memory.
MOST = 1000
#: Cosine of two tables below which they are not looked at: those of a distance above 1.2 are not
#: one lineage, whatever they share. Every fourth of the kept rows tells as much.
ALIKE, THINNED = 0.25, 4


class Lineages:
    """Tables as they come, each with the first one that it is related to.

    A table belongs to a lineage if it is related to its first table, or to the one that joined it
    last, so that the steps of a training belong together though its ends have nothing in common.
    """

    def __init__(self) -> None:
        self._of_width: dict[int, _Width] = {}

    def place(self, reference: str, mine: Fingerprint) -> str:
        """Return the reference of the first table of its lineage, which may be itself."""
        return self._of_width.setdefault(mine.dim, _Width(mine.dim)).place(reference, mine)


@dataclass
class _Lineage:
    head: str
    members: list[int] = field(default_factory=list)


class _Width:
    """The tables of one width: the first and the last of each lineage."""

    def __init__(self, dim: int) -> None:
        self.numbers = min(dim, NUMBERS)
        self.lineages: list[_Lineage] = []
        self.kept: list[Fingerprint] = []
        self.whose: list[int] = []
        self.by_digest: dict[str, int] = {}
        #: Unit vectors: of the rows, filled up with zeros, and of the mean rows of parts.
        self.rows = np.zeros((0, 0), dtype=np.float32)
        self.blocks = np.zeros((0, 0), dtype=np.float32)

    def place(self, reference: str, mine: Fingerprint) -> str:
        at = self.by_digest.get(mine.sha256)
        if at is not None:
            return self.lineages[at].head
        rows, blocks = _unit(mine.rows[::THINNED]), _unit(mine.blocks)
        found = self._related(mine, rows, blocks)
        if found is None:
            if len(self.lineages) >= MOST:
                return reference
            self.lineages.append(_Lineage(reference))
            found = len(self.lineages) - 1
        self.by_digest[mine.sha256] = found
        members = self.lineages[found].members
        if len(members) < 2:
            members.append(len(self.kept))
            self.kept.append(mine)
            self.whose.append(found)
        self._keep(members[-1], mine, rows, blocks)
        return self.lineages[found].head

    def _related(
        self, mine: Fingerprint, rows: NDArray[np.float32], blocks: NDArray[np.float32]
    ) -> int | None:
        """Return the lineage of the nearest related table."""
        if not self.kept:
            return None
        used, width = len(self.kept), min(len(rows), self.rows.shape[1])
        near = np.maximum(self.rows[:used, :width] @ rows[:width], self.blocks[:used] @ blocks)
        best: tuple[float, int] | None = None
        for at in np.flatnonzero(near >= ALIKE).tolist():
            seen = likeness(mine, self.kept[at])
            if seen.related and seen.distance is not None:
                best = min(best or (seen.distance, at), (seen.distance, at))
        return None if best is None else self.whose[best[1]]

    def _keep(
        self, at: int, mine: Fingerprint, rows: NDArray[np.float32], blocks: NDArray[np.float32]
    ) -> None:
        self.kept[at] = mine
        high, wide = self.rows.shape
        if at >= high or len(rows) > wide:
            size = max(2 * at, high, 8), max(len(rows), wide)
            grown = np.zeros(size, dtype=np.float32)
            grown[:high, :wide] = self.rows
            self.rows = grown
            parts = np.zeros((size[0], len(blocks)), dtype=np.float32)
            parts[:high, : self.blocks.shape[1]] = self.blocks
            self.blocks = parts
        self.rows[at], self.blocks[at] = 0, blocks
        self.rows[at, : len(rows)] = rows


def _unit(values: NDArray[np.float16]) -> NDArray[np.float32]:
    flat = values.astype(np.float32).ravel()
    return flat / (float(np.linalg.norm(flat)) or 1.0)
