"""A body that lies in a file of its own, because it is large. Pure."""

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
    crc: int  # of the file's name and the body

    @classmethod
    def of(cls, file: BodyFile, size: int, crc: int) -> Place:
        """Return the place of a body."""
        place = cls()
        place.file, place.size, place.crc = file, size, crc
        return place


def size_of(body: bytes) -> int:
    """Return how many bytes a body has, wherever it lies.

    >>> size_of(b"abc"), size_of(Place.of(BodyFile("1-1"), 7, 0))
    (3, 7)
    """
    return len(body) or (body.size if isinstance(body, Place) else 0)


PlaceOf = Callable[[str, int, int], Place]  # of a file's name, a size and a checksum


def no_file(name: str, size: int, crc: int) -> Place:
    """Return the place of a body that nobody will read."""
    return Place.of(BodyFile(name), size, crc)
