"""The wire format of protocol buffers: fields by number, without what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


class Damaged(ValueError):
    """Bytes that are no message."""


def varint(data: bytes | memoryview[int], place: int) -> tuple[int, int]:
    """Read a number of seven bits a byte; return it and the place behind it.

    Raises
    ------
    Damaged
        If the data end before it does, or it has more than 64 bits.
    """
    number = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise Damaged(f"there is no number at byte {place}")
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7


def places(
    data: bytes | memoryview[int], start: int, stop: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type and place (first byte, end) of each field of a message.

    Of numbers of a variable length the place is that of their bytes.

    Raises
    ------
    Damaged
        If the fields do not end where the message does.
    """
    place = start
    while place < stop:
        tag, place = varint(data, place)
        number, kind = tag >> 3, tag & 7
        begin = place
        if kind == 0:
            _, place = varint(data, place)
        elif kind == 2:
            length, begin = varint(data, place)
            place = begin + length
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        else:
            raise Damaged(f"a field at byte {begin} is of the kind {kind}")
        if place > stop:
            raise Damaged(f"a field at byte {begin} reaches beyond its message")
        yield number, kind, begin, place


@dataclass(frozen=True)
class Message:
    """The fields of a small message; of one that is there several times the last counts.

    Parameters
    ----------
    data
        The whole message.

    Raises
    ------
    Damaged
        As `places`.
    """

    data: bytes
    fields: list[tuple[int, int, int, int]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", list(places(self.data, 0, len(self.data))))

    def number(self, number: int) -> int:
        """Return a number, 0 where the field is missing."""
        found = [begin for n, kind, begin, _ in self.fields if n == number and kind == 0]
        return varint(self.data, found[-1])[0] if found else 0

    def contents(self, number: int) -> list[bytes]:
        """Return the bytes of every field of this number: texts, messages and the like."""
        return [self.data[b:e] for n, kind, b, e in self.fields if n == number and kind == 2]
