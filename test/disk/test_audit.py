"""The audit logs: what a line holds, what it never holds, and that no line is lost."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT

from rq import logs
from rq.access import audit
from rq.access.audit import Audit, Deed
from rq.layout import Root

NOW = 1_800_000_000.25


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path)


def deed(address="192.0.2.7", **fields):
    values = {"who": "ann", "what": "POST /q/mail/delete", "answer": "200", **fields}
    return Deed(address=address, **values)


def lines(root, name):
    return (root.log / name).read_text().splitlines()


def test_a_line_says_who_did_what_from_where_and_how_it_was_answered(root):
    Audit(root).note(deed(), NOW)
    assert lines(root, "audit.log") == [
        "time=2027-01-15T08:00:00.250Z who=ann address=192.0.2.7 "
        'what="POST /q/mail/delete" answer=200'
    ]


def test_what_strangers_send_stays_in_its_line_and_moves_no_cursor(root):
    hostile = 'a\nwho=root "\x1b[2J\u202e\u2028\udc80\x00' + "x" * 1000
    Audit(root).note(deed(who=hostile, what=hostile, forwarded_for=hostile), NOW)
    [line] = lines(root, "audit.log")
    assert line.isprintable()
    assert line.isascii() or "…" in line
    assert len(line) < 1000
    assert r"a\nwho=root \"" in line


def test_noise_of_strangers_goes_to_a_file_of_its_own_and_is_counted(root):
    book = Audit(root)
    written = [book.refuse(deed(answer="401"), NOW) for _ in range(410)]
    assert sum(written) == audit.EACH
    assert book.refuse(deed("192.0.2.8", answer="401"), NOW)
    book.flush(NOW + 59)
    assert len(lines(root, "refused.log")) == audit.EACH + 1
    book.flush(NOW + 61)
    last = lines(root, "refused.log")[-1]
    assert 'address=192.0.2.7 what="and 400 more refusals"' in last
    assert not (root.log / "audit.log").exists()


def test_many_addresses_cost_neither_memory_nor_a_line_each(root):
    book = Audit(root)
    for number in range(5000):
        book.refuse(deed(f"10.0.{number // 256}.{number % 256}"), NOW)
    for number in range(500):
        book.refuse(deed(f"2001:db8::{number:x}"), NOW)
    assert len(lines(root, "refused.log")) < 200
    assert len(book._groups._begun) < 200
    book.flush(NOW + 61)
    assert "other addresses" in lines(root, "refused.log")[-1]


def test_the_last_refusal_with_a_line_of_its_own_is_not_counted_again(root):
    book = Audit(root)
    for _ in range(audit.EACH):
        assert book.refuse(deed(), NOW)
    for _ in range(audit.EACH + 1):
        book.refuse(deed("192.0.2.8"), NOW)
    book.flush(NOW + 61)
    counted = [line for line in lines(root, "refused.log") if " more refusals" in line]
    assert len(counted) == 1
    assert 'address=192.0.2.8 what="and 1 more refusals"' in counted[0]


def test_a_hundred_addresses_are_told_apart_in_a_period_and_no_more(root):
    book = Audit(root)
    for number in range(101):
        for _ in range(audit.EACH + 1):
            book.refuse(deed(f"10.0.0.{number}"), NOW)
    book.flush(NOW + 61)
    text = (root.log / "refused.log").read_text()
    assert 'address=10.0.0.99 what="and 1 more refusals"' in text
    assert 'address=10.0.0.100 what="and' not in text
    assert f'address="{audit.OTHERS}" what="and 1 more refusals"' in text


def test_a_value_of_two_hundred_characters_is_whole_and_a_longer_one_is_cut(root):
    book = Audit(root)
    for size in (200, 201):
        book.note(deed(who="x" * size), NOW)
    whole, cut = lines(root, "audit.log")
    assert f"who={'x' * 200} " in whole
    assert "who=" + "x" * 199 + "…" in cut


def test_a_clock_that_is_set_back_ends_the_periods(root):
    book = Audit(root)
    for _ in range(20):
        book.refuse(deed(), NOW)
    assert book.refuse(deed(), NOW - 3600)


WRITER = """
import sys
from pathlib import Path
from rq import logs
logs.ROTATE_BYTES = 20_000
logs.KEEP = 50
for number in range(400):
    logs.append(Path(sys.argv[1]), f"{sys.argv[2]} {number} " + "x" * 200 + " end")
"""


def test_lines_of_several_processes_neither_tear_nor_are_lost_while_it_is_rotated(
    tmp_path,
):
    path = tmp_path / "log" / "audit.log"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )
        for name in "abcd"
    ]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    files = list(path.parent.iterdir())
    assert len(files) > 10
    found = [line for file in files for line in file.read_text().splitlines()]
    assert all(re.fullmatch(r"[abcd] \d+ x{200} end", line) for line in found)
    assert len(set(found)) == len(found) == 1600


def test_a_full_log_is_rotated_and_old_ones_go(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "ROTATE_BYTES", 100)
    path = tmp_path / "x.log"
    for number in range(40):
        logs.append(path, f"{number} " + "x" * 60)
    names = sorted(file.name for file in tmp_path.glob("x.*"))
    assert names == ["x.log", *(f"x.log.{n}" for n in range(1, logs.KEEP + 1))]
    assert path.read_text().splitlines()[-1].startswith("39 ")


def test_a_link_or_a_fifo_in_its_place_is_not_written_to(root, caplog):
    caplog.set_level(logging.ERROR)
    root.log.mkdir()
    (root.log / "audit.log").symlink_to(root.path / "planted")
    os.mkfifo(root.log / "refused.log")
    book = Audit(root)
    book.note(deed(), NOW)
    book.refuse(deed(), NOW)
    assert not (root.path / "planted").exists()
    assert len(caplog.messages) == 2
