"""A body that lies in a file, because it is large or memory is short. Pure."""

from __future__ import annotations

from collections.abc import Callable


class BodyFile:
    """The file; it can go when nothing refers to this object any more."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str) -> None:
        self.name = name


class Place(bytes):
    """Stands for the body in a file, which takes no memory: as bytes it is empty."""

    file: BodyFile
    size: int  # bytes of the body
    crc: int  # of the file's name, where in it the body begins, and the body
    offset: int  # where in the file it begins

    @classmethod
    def of(cls, file: BodyFile, size: int, crc: int, offset: int = 0) -> Place:
        """Return the place of a body."""
        place = cls()
        place.file, place.size, place.crc, place.offset = file, size, crc, offset
        return place


def size_of(body: bytes) -> int:
    """Return how many bytes a body has, wherever it lies.

    >>> size_of(b"abc"), size_of(Place.of(BodyFile("1-1"), 7, 0))
    (3, 7)
    """
    return len(body) or (body.size if isinstance(body, Place) else 0)


# Of a file's name, a size, a checksum and an offset.
PlaceOf = Callable[[str, int, int, int], Place]


def no_file(name: str, size: int, crc: int, offset: int) -> Place:
    """Return the place of a body that will not be read."""
    return Place.of(BodyFile(name), size, crc, offset)


class Weight:
    """What bodies take of memory.

    >>> weight = Weight()
    >>> weight.add(b"abc"), weight.add(no_file("1-1", 7, 0, 0))
    (None, None)
    >>> weight.bytes, weight.placed
    (3, 1)
    """

    __slots__ = ("bytes", "placed")

    def __init__(self) -> None:
        self.bytes = 0  # of those in memory
        self.placed = 0  # how many lie in files

    def add(self, body: bytes) -> None:
        """Count a body that is kept."""
        self.bytes += len(body)
        if not body and isinstance(body, Place):
            self.placed += 1

    def drop(self, body: bytes) -> None:
        """Count one no longer."""
        self.bytes -= len(body)
        if not body and isinstance(body, Place):
            self.placed -= 1

    def drop_all(self, of: Weight) -> None:
        """Count no longer what another weight counts."""
        self.bytes -= of.bytes
        self.placed -= of.placed
