"""The directory of a script as a tar: what is in it, what never is, and that it is the
same for the same files."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import time

import pytest

from rq.errors import NotPlain, Refused
from rq.web import script_archive


@pytest.fixture
def definition(tmp_path):
    directory = tmp_path / "definition"
    (directory / "lib").mkdir(parents=True)
    (directory / "run").write_text("#!/bin/sh\necho done >&3\n")
    (directory / "run").chmod(0o750)
    (directory / "config.json").write_text('{"env_vars": {"PASSWORD": "hidden"}}')
    (directory / "lib" / "a.py").write_text("A = 1\n")
    (directory / "lib" / "config.json").write_text("{}")
    return directory


def members(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {
            info.name: (info.mode, tar.extractfile(info).read())
            for info in tar.getmembers()
            if info.isreg()
        }


def test_it_has_the_files_and_whether_they_run_but_not_the_config(definition):
    data, digest = script_archive.of(definition / "run")
    assert digest == hashlib.sha256(data).hexdigest()
    assert members(data) == {
        "run": (0o755, b"#!/bin/sh\necho done >&3\n"),
        "lib/a.py": (0o644, b"A = 1\n"),
        "lib/config.json": (0o644, b"{}"),
    }
    assert b"hidden" not in data


def test_links_fifos_and_what_they_lead_to_are_left_out(definition, tmp_path):
    (tmp_path / "secret").write_text("hidden")
    (definition / "link").symlink_to(tmp_path / "secret")
    (definition / "above").symlink_to(tmp_path)
    os.mkfifo(definition / "fifo")
    data, _ = script_archive.of(definition / "run")
    assert set(members(data)) == {"run", "lib/a.py", "lib/config.json"}
    assert b"hidden" not in data


def test_the_same_files_are_the_same_bytes(definition, tmp_path):
    first = script_archive.of(definition / "run")
    copy = tmp_path / "copy"
    (copy / "lib").mkdir(parents=True)
    for name in ("lib/config.json", "lib/a.py", "run"):  # in another order, later
        (copy / name).write_bytes((definition / name).read_bytes())
    (copy / "run").chmod(0o777)
    assert script_archive.of(copy / "run") == first
    (copy / "lib" / "a.py").write_text("A = 2\n")
    assert script_archive.of(copy / "run")[1] != first[1]


def test_a_tar_is_kept_until_a_file_of_it_changes(definition):
    archives, later = script_archive.Archives(), time.time() + 60
    run, lib = definition / "run", definition / "lib" / "a.py"

    def made():
        return archives.of(run, later)

    first = made()
    assert made() is first
    was = lib.stat()
    lib.write_text("A = 9\n")
    os.utime(lib, ns=(was.st_atime_ns, was.st_mtime_ns))
    second = made()
    assert second[1] != first[1]
    run.chmod(0o640)
    third = made()
    assert third[1] != second[1]
    (definition / "more").touch()
    fourth = made()
    assert set(members(fourth[0])) == {"run", "lib/a.py", "lib/config.json", "more"}
    (definition / "more").unlink()
    assert made() == third


def test_a_tar_of_files_that_change_just_now_is_not_kept(definition):
    """Two changes within a tick of the clock leave the same time."""
    archives = script_archive.Archives()
    now = (definition / "run").stat().st_ctime
    assert archives.of(definition / "run", now) is not archives.of(
        definition / "run", now
    )


def test_of_large_tars_only_the_last_are_kept(definition, tmp_path):
    archives, later = script_archive.Archives(), time.time() + 60
    runs = []
    for number in range(3):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "run").touch()
        with (place / "model").open("wb") as file:
            file.truncate(script_archive.MOST_BYTES - 1000)
        runs.append(place / "run")
    first, _, third = [archives.of(run, later) for run in runs]
    assert archives.of(runs[2], later) is third
    assert archives.of(runs[0], later) is not first


def test_only_a_directory_of_a_script_is_shared(definition):
    other = definition.rename(definition.with_name("bin")) / "backup"
    other.write_text("#!/bin/sh\n")
    with pytest.raises(Refused, match="is not called run"):
        script_archive.of(other)


def test_what_is_too_large_is_refused(definition):
    with (definition / "model.bin").open("wb") as file:
        file.truncate(script_archive.MOST_BYTES)
    with pytest.raises(Refused, match=r"more than 2000 files or 32 MiB"):
        script_archive.of(definition / "run")


def test_too_many_files_are_refused(definition):
    for number in range(script_archive.MOST_FILES):
        (definition / f"{number}").touch()
    with pytest.raises(Refused, match="more than 2000 files"):
        script_archive.of(definition / "run")


def test_what_cannot_be_read_is_one_sentence(definition):
    with pytest.raises(NotPlain, match=r"nowhere: No such file .* not shared"):
        script_archive.of(definition / "nowhere" / "run")
