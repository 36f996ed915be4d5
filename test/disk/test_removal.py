"""Directories that are removed: wholly, whoever else is at them."""

import contextlib
import os
import threading

from rq import durable

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
