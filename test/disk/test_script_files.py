"""What RQ's own scripts keep beside their message stays there, whatever is planted."""

import os

import pytest
from harness.limits import no_descriptors

from rq.errors import NotPlain
from rq.layout import Root
from rq.relay.store import Store
from rq.relay.transfers import ls
from rq.spool import adoption, script_files


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "ID"
    (folder / "job").mkdir(parents=True)
    (tmp_path / "victim.json").write_text('{"remote": "stolen", "peer": "victim"}')
    yield folder
    assert (tmp_path / "victim.json").read_text().startswith('{"remote": "stolen"')


def test_what_is_kept_is_read_again(place):
    Store(place / "job").keep(remote="here")
    assert Store(place / "job").stored.remote == "here"
    assert script_files.read_json(place, "job/relay.json")["remote"] == "here"


@pytest.mark.parametrize("name", ["relay.json", ".relay.json.tmp"])
@pytest.mark.parametrize("plant", [os.symlink, os.link])
def test_the_relay_writes_into_no_other_file(place, name, plant):
    plant(place.parent / "victim.json", place / "job" / name)
    store = Store(place / "job")
    store.keep(remote="mine")
    assert Store(place / "job").stored.remote == "mine"


def test_the_relay_believes_nothing_that_a_link_leads_to(place):
    (place / "job/relay.json").symlink_to(place.parent / "victim.json")
    assert Store(place / "job").stored.remote is None


def test_a_working_directory_that_leads_elsewhere_is_not_written_to(place):
    elsewhere = place.parent / "elsewhere"
    elsewhere.mkdir()
    (place / "job").rmdir()
    (place / "job").symlink_to(elsewhere)
    with pytest.raises((NotPlain, NotADirectoryError)):
        Store(place / "job").keep(remote="mine")
    assert os.listdir(elsewhere) == []


def test_the_list_of_transfers_shows_nothing_that_a_link_leads_to(tmp_path):
    root = Root(tmp_path)
    folder = root.queue("relay").path / "err/20200101.0000.00.000.7"
    (folder / "job").mkdir(parents=True)
    (tmp_path / "victim.json").write_text('{"peer": "victim"}')
    (folder / "job/relay.json").symlink_to(tmp_path / "victim.json")
    assert ls(root) == []


def test_a_queue_from_elsewhere_changes_no_mode_behind_a_link(owner, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("x")
    victim.chmod(0o666)
    owner.stop()
    for number, plant in enumerate((os.symlink, os.link)):
        folder = owner.queue.path / f"err/20200101.0000.00.000.{number}"
        folder.mkdir()
        plant(victim, folder / "msg")
    adoption.adopt_modes(owner.queue)
    assert victim.stat().st_mode & 0o777 == 0o666
    owner.open()


@pytest.mark.parametrize("name", ["relay.json", "relay_id"])
def test_what_was_sent_is_not_forgotten_by_who_cannot_read_it_now(place, name):
    # It would be sent again, and what was known be written over.
    (place / "job" / name).write_text('{"remote": "there"}')
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        Store(place / "job")
    assert Store(place / "job").stored.remote is not None
