"""Which tables of a sweep come from one another: groups, found in one pass over all.

Fingerprints go to the sweep's file of them and are read back from there, so that memory holds no
more than a sketch of each table that later ones are held against.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import InvalidCheckpoint
from posprobe.sweeps.fingerprints import Fingerprint, read_fingerprint as read, related_distance

#: Lineages of tables of one width that later tables are held against, which bounds time and memory.
MOST = 1000
#: Cosine of two tables below which they are not looked at: those of a distance above 1.2 are not
#: one lineage, whatever they share. Every fourth of the kept rows tells as much.
ALIKE, THINNED = 0.25, 4
#: Largest number of a sketch, and sketches that are compared at a time.
LARGEST, TOGETHER = 127, 64


class Lineages:
    """Tables as they come, each with the first one that it is related to.

    A table belongs to a lineage if it is related to its first table, or to the one that joined it
    last, so that the steps of a training belong together though its ends have nothing in common.

    Parameters
    ----------
    file
        An empty file, open for reading and writing: gets a line for each table, as
        `posprobe.sweeps.search.read_fingerprints` reads them.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._of_width: dict[int, _Width] = {}

    def place(self, reference: str, name: str | None, mine: Fingerprint) -> str:
        """Keep a table; return the reference of the first of its lineage, which may be itself."""
        at = self._file.seek(0, os.SEEK_END)
        known = {"reference": reference, "name": name, "fingerprint": mine.to_dict()}
        self._file.write(json.dumps(known).encode() + b"\n")
        width = self._of_width.setdefault(mine.dim, _Width())
        return width.place(reference, mine, at, self._kept)

    def _kept(self, at: int) -> Fingerprint:
        """Read back the fingerprint whose line begins there."""
        self._file.seek(at)
        found = read(json.loads(self._file.readline())["fingerprint"])
        if found is None:
            raise InvalidCheckpoint("the fingerprints were changed while they were written")
        return found


@dataclass
class _Lineage:
    head: str
    members: list[int] = field(default_factory=list)


class _Width:
    """The tables of one width: the first and the last of each lineage."""

    def __init__(self) -> None:
        self.lineages: list[_Lineage] = []
        #: Of each kept table: where its fingerprint's line begins, and its lineage.
        self.places: list[int] = []
        self.whose: list[int] = []
        self.by_digest: dict[str, int] = {}
        self.rows, self.blocks = _Sketches(), _Sketches()

    def place(
        self, reference: str, mine: Fingerprint, at: int, kept: Callable[[int], Fingerprint]
    ) -> str:
        known = self.by_digest.get(mine.sha256)
        if known is not None:
            return self.lineages[known].head
        rows, blocks = _unit(mine.rows[::THINNED]), _unit(mine.blocks)
        found = self._related(mine, rows, blocks, kept)
        if found is None:
            if len(self.lineages) >= MOST:
                return reference
            self.lineages.append(_Lineage(reference))
            found = len(self.lineages) - 1
        self.by_digest[mine.sha256] = found
        members = self.lineages[found].members
        if len(members) < 2:
            members.append(len(self.places))
            self.places.append(at)
            self.whose.append(found)
        last = members[-1]
        self.places[last] = at
        self.rows.put(last, rows)
        self.blocks.put(last, blocks)
        return self.lineages[found].head

    def _related(
        self,
        mine: Fingerprint,
        rows: NDArray[np.float32],
        blocks: NDArray[np.float32],
        kept: Callable[[int], Fingerprint],
    ) -> int | None:
        """Return the lineage of the nearest related table."""
        used = len(self.places)
        near = np.maximum(self.rows.cosines(used, rows), self.blocks.cosines(used, blocks))
        best: tuple[float, int] | None = None
        for at in np.flatnonzero(near >= ALIKE).tolist():
            distance = related_distance(mine, kept(self.places[at]))
            if distance is not None:
                best = min(best or (distance, at), (distance, at))
        return None if best is None else self.whose[best[1]]


class _Sketches:
    """Unit vectors in whole numbers of 8 bits, filled up with zeros.

    What rounding takes from a cosine is a thousandth or so, which a bound that is not sharp allows.
    """

    def __init__(self) -> None:
        self.values = np.zeros((0, 0), dtype=np.int8)
        self.steps = np.zeros(0, dtype=np.float32)

    def put(self, at: int, vector: NDArray[np.float32]) -> None:
        high, wide = self.values.shape
        if at >= high or len(vector) > wide:
            size = max(2 * at, high, 8), max(len(vector), wide)
            values, steps = np.zeros(size, dtype=np.int8), np.zeros(size[0], dtype=np.float32)
            values[:high, :wide], steps[:high] = self.values, self.steps
            self.values, self.steps = values, steps
        self.steps[at] = float(np.abs(vector).max(initial=0.0)) / LARGEST or 1.0
        self.values[at] = 0
        self.values[at, : len(vector)] = np.rint(vector / self.steps[at])

    def cosines(self, used: int, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the cosines of the first so many with a unit vector."""
        width = min(len(vector), self.values.shape[1])
        found = np.zeros(used, dtype=np.float32)
        for begin in range(0, used, TOGETHER):
            end = min(begin + TOGETHER, used)
            found[begin:end] = self.values[begin:end, :width].astype(np.float32) @ vector[:width]
        return found * self.steps[:used]


def _unit(values: NDArray[np.float16]) -> NDArray[np.float32]:
    flat = values.astype(np.float32).ravel()
    return flat / (float(np.linalg.norm(flat)) or 1.0)
