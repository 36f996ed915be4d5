"""Directories that are removed: wholly, whoever else is at them."""

import contextlib
import os
import threading

import pytest
from harness.limits import mounted_on
from harness.message_folders import deepen

from rq.files import beneath, durable

ROUNDS, FILES = 20, 300


def test_a_directory_is_removed_wholly_while_another_removes_in_it(tmp_path):
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        names = [folder / f"{one:03}" for one in range(FILES)]
        for name in names:
            name.touch()
        other = threading.Thread(target=remove, args=(names[::2],))
        other.start()
        durable.remove_tree(str(folder))
        other.join()
        assert not folder.exists()


def remove(names):
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def test_a_directory_that_a_script_has_locked_is_removed(tmp_path):
    folder = tmp_path / "job" / "deep"
    folder.mkdir(parents=True)
    (folder / "file").touch()
    folder.chmod(0o500)
    folder.parent.chmod(0)
    durable.remove_tree(str(folder.parent))
    assert os.listdir(tmp_path) == []


def test_a_directory_that_is_gone_already_is_no_error(tmp_path):
    durable.remove_tree(str(tmp_path / "none"))


@pytest.mark.parametrize("where", [".", "job", "job/deep"])
@pytest.mark.parametrize("way", ["openat2", "by_steps"])
def test_what_is_mounted_in_a_directory_is_not_removed_with_it(
    tmp_path, monkeypatch, where, way
):
    """A script may have left it: what is under it belongs to somebody else."""
    folder, theirs = tmp_path / "folder", tmp_path / "theirs"
    place = folder / where
    place.mkdir(parents=True)
    theirs.mkdir()
    kind = ("-t", "tmpfs", "none") if way == "by_steps" else ("--bind", theirs)
    if way == "by_steps":
        monkeypatch.setattr(beneath, "_open", beneath.by_steps)
    with mounted_on(place, *kind):
        (place / "precious").write_text("kept")
        with pytest.raises(OSError, match=r"busy|cross-device"):
            durable.remove_tree(str(folder))
        assert (place / "precious").read_text() == "kept"
    durable.remove_tree(str(folder))
    assert os.listdir(tmp_path) == ["theirs"]


def test_a_tree_deeper_than_any_path_is_removed(tmp_path):
    deepen(tmp_path)
    durable.remove_tree(str(tmp_path / "d"))
    assert os.listdir(tmp_path) == []
