"""What `rq queue new` writes: whole, or nothing."""

import pytest

from rq.config import files


def test_a_definition_that_cannot_be_written_leaves_none(tmp_path):
    place = tmp_path / "commands" / "backup"
    with pytest.raises(OSError, match="name too long"):
        files.write_definition(place, {"a": b"{}", "b" * 300: b"{}"}, b"#!/bin/sh\n")
    assert not place.exists()
    files.write_definition(place, {"a": b"{}"}, b"#!/bin/sh\n")
    assert sorted(one.name for one in place.iterdir()) == ["a", "run"]


def test_what_another_has_made_is_left_to_it(tmp_path):
    place = tmp_path / "commands" / "backup"
    files.write_definition(place, {"a": b"{}"}, b"#!/bin/sh\n")
    with pytest.raises(FileExistsError):
        files.write_definition(place, {"b": b"{}"}, b"#!/bin/sh\n")
    assert sorted(one.name for one in place.iterdir()) == ["a", "run"]
