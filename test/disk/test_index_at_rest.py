"""What the index looks at of queues that are parked, and how it hears that one hides more."""

import json
import os
import time

import pytest
from harness.index import bare_root
from harness.spool import Owner
from harness.steps import calls

from rq.index import __main__ as program
from rq.index import word
from rq.index.follow import Follower
from rq.index.keeper import Keeper
from rq.index.store import Place
from rq.scandir.cache import look
from rq.scandir.passes import Scandir


@pytest.fixture
def root(tmp_path):
    return bare_root(tmp_path)


@pytest.fixture
def mail(root):
    owner = Owner(root.path, clock=time.time, name="mail")
    configure(owner.queue)
    owner.open()
    owner.submit(param1="secret")
    owner.spool.commit()
    owner.spool.journal.seal()
    yield owner.queue
    owner.crash()


@pytest.fixture
def keeper(root, mail):
    keeper = Keeper(root, days=31, limit=2**31, least=0)
    while keeper.step() == 0.0:
        pass
    yield keeper
    keeper.close()


def configure(queue, **settings):
    queue.config.write_text(json.dumps({"name": "mail", "script": "x", **settings}))


# ---- parked


@pytest.fixture
def follower(mail):
    """One that has looked at a queue which is parked."""
    mail.parked.write_text("{}")
    follower = Follower(mail.journal_dir, Place(), mail.parked)
    assert follower.has_changed()
    assert follower.first() == 1
    return follower


def looks(follower):
    changed = []
    counts = calls(lambda: changed.append(follower.has_changed()))
    return changed[0], counts["listdir"] + counts["scandir"]


def test_nothing_is_listed_while_it_stays_parked(follower):
    assert looks(follower) == (False, 0)
    counts = calls(follower.first)
    assert counts["listdir"] + counts["scandir"] == 0


def test_one_that_was_woken_is_looked_at(follower, mail):
    mail.parked.unlink()
    assert looks(follower)[1] > 0
    assert looks(follower)[1] > 0


def test_one_that_was_parked_again_is_looked_at_once(follower, mail):
    mail.parked.unlink()
    mail.parked.write_text("{}")
    os.utime(mail.parked, (1.0, 1.0))
    assert looks(follower)[1] > 0
    assert looks(follower) == (False, 0)


def test_what_a_person_lays_into_its_journal_is_seen(follower, mail):
    (mail.journal_dir.active / "999").touch()
    assert looks(follower)[0]


def test_it_is_looked_at_again_if_that_is_wanted(follower):
    follower.look_again()
    assert looks(follower)[0]


# ---- another config


def test_a_word_of_another_config_is_a_look_now_if_it_hides_other_params(keeper, mail):
    assert keeper._look_at > 0
    configure(mail, num_workers=3)
    keeper.hear_of_config("mail")
    keeper.hear_of_config("none")
    assert keeper._look_at > 0
    configure(mail, index={"hide": ["param1"]})
    keeper.hear_of_config("mail")
    assert keeper._look_at == 0


def test_scandir_sends_this_word_when_a_config_has_changed(root, keeper, mail):
    scandir = Scandir(root)
    scandir.stamps["mail"] = look(str(mail.config))
    with word.listen(root) as sock:
        scandir.look_at_config("mail")
        with pytest.raises(BlockingIOError):
            sock.recv(word.LONGEST)
        configure(mail, index={"hide": ["param1"]})
        scandir.look_at_config("mail")
        program._hear(sock, keeper)
    assert keeper._look_at == 0


def test_a_word_that_says_nothing_is_no_config():
    for data in (b"", b"[]", b'{"queue": "q"}', b"{"):
        assert word.config_of(data) is None
