"""The journal on disk: lines, groups, segments, and what a torn or failing one leaves."""

import contextlib
import errno
import math
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest
from harness.limits import files_of, no_descriptors
from harness.waiting import wait_until

from rq.errors import Damaged, DiskFailed, Displaced
from rq.files import durable
from rq.journal import history, line, segments
from rq.journal.segment_file import read_header, segment_name
from rq.journal.segments import SMALLEST, Author, Position
from rq.journal.writer import GROUP_BYTES, GROUP_EVENTS, LOOK, Journal
from rq.layout import JournalDir
from rq.spool import check
from rq.words.states import Event, Note, State


def active(owner):
    """Return the segment that is written to."""
    return history.active_segments(owner.queue.journal_dir)[-1].path


def groups(owner, number=3, each=2):
    """Commit `number` groups of `each` messages; return their ids."""
    ids = []
    for _ in range(number):
        ids.append([owner.submit(param1="x" * 50) for _ in range(each)])
        owner.spool.commit()
    return ids


def line_starts(data):
    """Return where the lines of a segment start, and the end of the last."""
    starts, at = [], 0
    while data[at : at + 1] == b"{":
        starts.append(at)
        at = data.index(b"\n", at) + 1
    return [*starts, at]


def change(path, at, new):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(new)


def states(owner, ids):
    return [owner.spool.find(one) for one in ids]


def rows(owner):
    """Return all events in the order a reader of the journal meets them."""
    return [
        e
        for read in history.events_after(owner.queue.journal_dir, 0)
        for e in read.events
    ]


# ---- lines


def test_a_line_is_json_that_tools_can_read(owner):
    groups(owner)
    data = active(owner).read_bytes().rstrip(b"\0")
    found = [orjson.loads(text) for text in data.splitlines()]
    assert [one["ev"] for one in found] == [line.Note.OPEN] + [Event.COMMIT] * 6
    assert [one["seq"] for one in found[1:]] == [1, 2, 3, 4, 5, 6]
    assert [one["g"] for one in found[1:]] == [1, 1, 2, 2, 3, 3]


def test_a_line_of_another_segment_or_journal_never_verifies():
    body = line.body({"g": 1, "seq": 1, "ev": "commit"})
    text = line.sealed(body, line.seed("j1", "s1"))[:-1]
    assert line.read(text, line.seed("j1", "s1"))["seq"] == 1
    assert line.read(text, line.seed("j1", "s2")) is None
    assert line.read(text, line.seed("j2", "s1")) is None


@pytest.mark.parametrize("at", [0, 9, 16, 18, 30, -2])
def test_a_changed_byte_never_verifies(at):
    start = line.seed("j", "s")
    text = bytearray(line.sealed(line.body({"g": 1, "seq": 1}), start)[:-1])
    text[at] ^= 1
    assert line.read(bytes(text), start) is None


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"crc":"', b"\0" * 40, b'{"crc":"zzzzzzzz",}']
)
def test_what_is_no_line_never_verifies(text):
    assert line.read(text, line.seed("j", "s")) is None


def test_a_stale_line_behind_the_end_is_not_read(owner):
    groups(owner, 2)
    path = active(owner)
    stale = path.read_bytes()
    owner.stop()
    owner.open()
    (msg_id,) = groups(owner, 1, 1)[0]
    path = active(owner)
    starts = line_starts(path.read_bytes())
    old = line_starts(stale)
    change(path, starts[-1], stale[old[1] : old[-1]])
    owner.again()
    assert owner.spool.counts.of(State.QUE) == 5
    assert owner.spool.find(msg_id) is State.QUE


# ---- what a crash leaves at the end


@pytest.mark.parametrize(
    "damage",
    [
        lambda path, starts: change(
            path, starts[-2], b"\0" * (starts[-1] - starts[-2])
        ),
        lambda path, starts: change(path, starts[-2] + 40, b"\0" * 8),
        lambda path, starts: change(path, starts[-1] - 1, b"\0"),
        lambda path, starts: os.truncate(path, starts[-1] - 5),
        lambda path, starts: os.truncate(path, starts[-2] + 3),
        lambda path, starts: change(path, starts[-2], b"\xff" * 20),
    ],
    ids=["nothing", "hole", "no newline", "short", "three bytes", "garbage"],
)
def test_a_torn_last_line_is_dropped_and_all_before_it_stays(owner, damage):
    *_, (kept, torn) = ids = groups(owner)
    path = active(owner)
    damage(path, line_starts(path.read_bytes()))
    owner.again()
    assert states(owner, [*ids[0], *ids[1], kept]) == [State.QUE] * 5
    assert owner.spool.find(torn) is None
    owner.stop()
    assert check.check(owner.queue) == []


def test_good_lines_behind_a_hole_in_the_last_group_are_not_applied(owner):
    *_, (first, hole, behind) = groups(owner, 2, 3)
    path = active(owner)
    starts = line_starts(path.read_bytes())
    change(path, starts[-3], b"\0" * (starts[-2] - starts[-3]))
    owner.again()
    assert states(owner, [first, hole, behind]) == [State.QUE, None, None]


def test_a_last_group_that_lost_its_first_page_is_dropped_whole(owner):
    *_, last = groups(owner, 2, 3)
    path = active(owner)
    starts = line_starts(path.read_bytes())
    change(path, starts[-4], b"\0" * 60)
    owner.again()
    assert states(owner, last) == [None] * 3
    assert owner.spool.counts.of(State.QUE) == 3


def test_a_first_group_that_is_torn_is_dropped(owner):
    groups(owner, 1, 3)
    path = active(owner)
    change(path, line_starts(path.read_bytes())[1], b"\0" * 60)
    owner.again()
    assert owner.spool.counts.of(State.QUE) == 0


@pytest.mark.parametrize("group", [0, 1])
def test_a_bad_line_with_later_groups_behind_it_is_damage(owner, group):
    groups(owner)
    path = active(owner)
    at = line_starts(path.read_bytes())[1 + 2 * group + 1]
    change(path, at + 30, b"!")
    owner.crash()
    with pytest.raises(Damaged, match=rf"{path.name}: bad line at byte {at}"):
        owner.open()
    (problem,) = check.check(owner.queue)
    assert (problem.kind, problem.subject) == ("damage", str(owner.queue.journal))
    assert path.exists()


def test_a_whole_group_that_is_lost_in_the_middle_is_damage(owner):
    groups(owner, 3, 1)
    path = active(owner)
    starts = line_starts(path.read_bytes())
    change(path, starts[2], b"\0" * (starts[3] - starts[2]))
    owner.crash()
    with pytest.raises(Damaged):
        owner.open()


@pytest.mark.parametrize("content", [b"", b"\0" * SMALLEST, b'{"crc":"0', b"x\n" * 9])
def test_a_segment_without_a_header_is_ignored_and_replaced(owner, content):
    ids = [one for group in groups(owner) for one in group]
    owner.crash()
    (owner.queue.journal / segment_name(7)).write_bytes(content)
    owner.open()
    assert states(owner, ids) == [State.QUE] * 6
    again = owner.submit()
    owner.spool.commit()
    owner.again()
    assert owner.spool.find(again) is State.QUE


def test_a_segment_that_ends_before_the_next_one_begins_is_damage(owner):
    groups(owner)
    path = active(owner)
    kept = path.read_bytes()
    starts = line_starts(kept)
    owner.again()
    (sealed,) = history.sealed_segments(
        owner.queue.journal_dir, owner.spool.journal.journal_id
    )
    owner.submit()
    owner.spool.commit()
    owner.crash()
    os.truncate(sealed.path, starts[-2])
    with pytest.raises(Damaged, match="ends with event 5, the next segment follows 6"):
        owner.open()


def test_nothing_is_appended_to_a_segment_of_an_earlier_process(owner):
    groups(owner)
    before = active(owner).read_bytes()
    size = line_starts(before)[-1]
    owner.again()
    (sealed,) = history.sealed_segments(
        owner.queue.journal_dir, owner.spool.journal.journal_id
    )
    assert sealed.path.read_bytes() == before[:size]
    header = read_header(active(owner))
    assert header["prev"] == [sealed.name, size, 6]


# ---- segments and history


def test_sealing_names_first_and_last_and_cuts_to_length(owner):
    groups(owner)
    size = line_starts(active(owner).read_bytes())[-1]
    assert active(owner).stat().st_size == SMALLEST
    assert owner.spool.journal.seal()
    (sealed,) = history.sealed_segments(
        owner.queue.journal_dir, owner.spool.journal.journal_id
    )
    assert sealed.path.name == f"{1:016d}-{6:016d}.jsonl"
    assert sealed.path.stat().st_size == size
    assert active(owner).name == f"{7:016d}"


def test_an_empty_segment_is_not_sealed(owner):
    assert not owner.spool.journal.seal()
    groups(owner)
    assert owner.spool.journal.seal()
    assert not owner.spool.journal.seal()


def test_a_full_segment_is_followed_by_another(owner):
    ids = []
    for _ in range(5):
        ids += [owner.submit(param1="x" * 100_000) for _ in range(4)]
        owner.spool.commit()
    sealed = history.sealed_segments(
        owner.queue.journal_dir, owner.spool.journal.journal_id
    )
    assert sealed
    assert all(one.path.stat().st_size <= SMALLEST for one in sealed)
    assert [e["seq"] for e in rows(owner)] == list(range(1, 21))
    owner.again()
    assert states(owner, ids) == [State.QUE] * 20


def test_a_group_larger_than_a_segment_gets_one_that_holds_it(owner):
    ids = [owner.submit(param1="x" * 100_000) for _ in range(25)]
    assert owner.spool.journal.full
    assert GROUP_BYTES < 25 * 100_000
    owner.spool.commit()
    assert active(owner).stat().st_size > 2 * SMALLEST
    owner.again()
    assert states(owner, ids) == [State.QUE] * 25


def test_a_reader_gets_no_segment_of_which_it_has_all(owner):
    for _ in range(3):
        groups(owner, 1)
        owner.spool.journal.seal()

    def after(seq):
        read = history.events_after(owner.queue.journal_dir, seq)
        found = [[event["seq"] for event in content.events] for content in read]
        return [numbers for numbers in found if numbers]

    assert after(3) == [[3, 4], [5, 6]]
    assert after(4) == [[5, 6]]
    assert after(6) == []


def test_a_gap_in_the_history_is_reported(owner):
    for _ in range(3):
        groups(owner, 1)
        owner.spool.journal.seal()
    journal = owner.spool.journal.journal_id
    owner.apply()
    owner.stop()
    history.sealed_segments(owner.queue.journal_dir, journal)[1].path.unlink()
    (problem,) = check.check(owner.queue)
    assert (problem.kind, problem.text) == ("gap", "events 3 to 4 are missing")


def test_of_two_segments_that_are_not_sealed_the_first_is_read_for_what_it_has(owner):
    """As a crash leaves them: the second tells where the first ends."""
    groups(owner, 2, 2)
    owner.crash()
    left = history.active_segments(owner.queue.journal_dir)[-1]
    aside = left.path.with_name("aside")
    shutil.copy2(left.path, aside)
    owner.open()
    groups(owner, 1, 1)
    place = owner.queue.journal_dir
    for sealed in place.history.glob("*/*"):
        sealed.unlink()
    aside.rename(left.path)

    def first_seqs(seq):
        return [read.segment.first for read in history.events_after(place, seq)]

    assert first_seqs(0) == first_seqs(3) == [1, 5]
    assert first_seqs(4) == first_seqs(5) == [5]


def test_a_segment_that_ends_with_the_event_asked_for_is_not_read(owner):
    # Its events are in the folders: what has become of it since keeps no queue down.
    groups(owner)
    last = owner.spool.last_seq
    owner.spool.seal().result()
    groups(owner)
    place = owner.queue.journal_dir
    covered, following = history.segments(place)
    change(covered.path, line_starts(covered.path.read_bytes())[1] + 20, b"?")
    assert [read.segment for read in history.events_after(place, last)] == [following]
    with pytest.raises(Damaged):
        list(history.events_after(place, last - 1))


def test_of_two_files_with_the_same_events_the_wider_is_read(owner):
    groups(owner, 2)
    owner.spool.journal.seal()
    groups(owner, 1)
    owner.spool.journal.seal()
    first, second = history.sealed_segments(
        owner.queue.journal_dir, journal := owner.spool.journal.journal_id
    )
    merged = first.path.with_name(f"{1:016d}-{6:016d}.jsonl")
    merged.write_bytes(first.path.read_bytes())
    assert [
        (one.first, one.last)
        for one in history.sealed_segments(owner.queue.journal_dir, journal)
    ] == [(1, 6)]
    assert second.first == 5


def test_what_goes_into_a_segment_that_was_removed_is_not_promised(owner):
    owner.spool.look_at_place()  # and no more for a moment
    active(owner).unlink()
    owner.submit()
    with pytest.raises(Displaced, match="is gone"):
        owner.spool.commit()


def test_history_holds_only_groups_that_were_durable(owner):
    groups(owner)
    owner.submit()  # never committed
    owner.crash()
    owner.open()
    owner.stop()
    events = [e["ev"] for e in rows(owner)]
    assert events == [Event.COMMIT] * 6 + [Note.STOPPED]


# ---- a disk that fails


def put_in_place(owner, path, flags):
    fd = os.open(path, flags)
    os.dup2(fd, owner.spool.journal._segments.current.fd, inheritable=False)
    os.close(fd)


def break_write(owner):
    """Let the next write fail, on a descriptor that cannot be written."""
    put_in_place(owner, active(owner), os.O_RDONLY)


def break_sync(owner):
    """Let the next sync fail, and no write: /dev/null takes all and syncs nothing. The
    journal would see that it is another file, and does not look."""
    owner.spool.journal._look_at = math.inf
    put_in_place(owner, os.devnull, os.O_RDWR)


broken = pytest.mark.parametrize("break_journal", [break_write, break_sync])


def test_a_large_first_group_is_written_again_though_the_name_was_given_away(
    owner, monkeypatch
):
    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    text = {f"param{n}": "x" * 120_000 for n in range(1, 5)}
    with monkeypatch.context() as patched:
        for _ in range(SMALLEST // 480_000 + 1):
            owner.submit(**text)
        patched.setattr(durable, "sync_path", fails)
        with pytest.raises(DiskFailed):
            owner.spool.commit()
    owner.spool.look_at_place()
    assert owner.spool.displaced is None
    owner.spool.commit()


def test_what_is_written_after_the_journal_was_moved_away_is_not_safe(owner):
    groups(owner, 1)
    owner.submit()
    owner.queue.path.rename(owner.queue.path.with_name("moved"))
    owner.spool.look_at_place()
    assert owner.spool.displaced is not None
    assert owner.spool.journal.write() is False


@broken
def test_a_failed_group_goes_to_a_new_segment_with_the_same_seqs(owner, break_journal):
    groups(owner, 1)
    failing = active(owner)
    break_journal(owner)
    ids = [owner.submit(), owner.submit()]
    with pytest.raises(DiskFailed):
        owner.spool.commit()
    assert owner.spool.journal.pending
    assert owner.spool.journal.position.seq == 2
    ids.append(owner.submit())
    owner.spool.commit()
    assert active(owner).name == f"{3:016d}"
    assert active(owner) != failing
    assert [e["seq"] for e in rows(owner)] == [1, 2, 3, 4, 5]
    owner.again()
    assert states(owner, ids) == [State.QUE] * 3
    assert owner.spool.counts.of(State.QUE) == 5


def test_after_a_write_that_failed_the_commit_goes_to_a_new_segment(owner):
    ids = groups(owner, 1)[0]
    failing = active(owner)
    break_write(owner)
    ids.append(owner.submit())
    assert not owner.spool.journal.write()
    owner.spool.commit()
    assert active(owner) != failing
    owner.again()
    assert states(owner, ids) == [State.QUE] * len(ids)


@broken
def test_what_a_failed_sync_left_in_the_old_segment_is_read_once(owner, break_journal):
    """The page cache shows a failed group as if it were written: the later one counts."""
    groups(owner, 1)
    path = active(owner)
    starts = line_starts(path.read_bytes())
    break_journal(owner)
    ids = [owner.submit(param1="once"), owner.submit(param1="twice")]
    with pytest.raises(DiskFailed):
        owner.spool.commit()
    seed = line.seed(owner.spool.journal.journal_id, path.name)
    journal = owner.spool.journal
    change(
        path, starts[-1], line.group(journal._group, journal.position.g + 1, seed, True)
    )
    owner.spool.commit()
    owner.again()
    assert [e["seq"] for e in rows(owner)][:4] == [1, 2, 3, 4]
    assert states(owner, ids) == [State.QUE] * 2
    assert [
        (one.first, one.last)
        for one in history.sealed_segments(
            owner.queue.journal_dir, owner.spool.journal.journal_id
        )
    ] == [(1, 2), (3, 4)]


@broken
def test_a_failed_segment_does_not_disturb_what_is_sealed_after_it(
    owner, break_journal
):
    ids = groups(owner, 1)[0]
    break_journal(owner)
    ids.append(owner.submit())
    with pytest.raises(DiskFailed):
        owner.spool.commit()
    owner.spool.commit()
    owner.spool.journal.seal()
    ids.append(owner.submit())
    owner.spool.commit()
    owner.again()
    assert states(owner, ids) == [State.QUE] * 4
    owner.stop()
    assert check.check(owner.queue) == []


@broken
def test_a_failed_group_before_any_good_one_is_written_again(owner, break_journal):
    break_journal(owner)
    msg_id = owner.submit()
    with pytest.raises(DiskFailed):
        owner.spool.commit()
    owner.spool.commit()
    owner.again()
    assert owner.spool.find(msg_id) is State.QUE


@pytest.fixture
def half_sealed(owner):
    """Two messages, and a seal that failed after the next segment had its name."""
    ids = groups(owner, 1)[0]
    segments = owner.spool.journal._segments
    with ThreadPoolExecutor(1) as segments._threads:
        owner.spool.look_for_space()
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        owner.spool.seal()
    segments._threads = None
    assert active(owner).name == segment_name(3), "it failed at another step"
    return ids


@pytest.mark.parametrize("end", ["crash", "stop"])
@pytest.mark.parametrize("more", [0, 2])
def test_after_a_seal_that_failed_half_way_all_stays(owner, half_sealed, more, end):
    ids = [*half_sealed, *(one for ids in groups(owner, more) for one in ids)]
    getattr(owner, end)()
    owner.open()
    assert states(owner, ids) == [State.QUE] * len(ids)
    seqs = [e["seq"] for e in rows(owner)]
    assert seqs == list(range(1, len(seqs) + 1))
    owner.stop()
    assert check.check(owner.queue) == []


def test_without_room_for_a_segment_nothing_is_promised_and_nothing_lost(owner):
    ids = groups(owner, 1)[0]
    break_write(owner)
    ids.append(owner.submit())
    with pytest.raises(DiskFailed):
        owner.spool.commit()
    with files_of(64 * 1024):
        for _ in range(3):
            with pytest.raises(DiskFailed, match="65536 of 1048576 bytes"):
                owner.spool.commit()
        assert not (owner.queue.journal / "next").exists()
        assert owner.spool.journal.position.seq == 2
    owner.spool.commit()
    owner.again()
    assert states(owner, ids) == [State.QUE] * 3


def test_a_short_write_is_a_failed_write(owner):
    ids = groups(owner, 1)[0]
    end = owner.spool.journal.position.offset
    ids += [owner.submit() for _ in range(3)]
    with files_of(end + 100), pytest.raises(DiskFailed):
        owner.spool.commit()
    owner.spool.commit()
    owner.again()
    assert states(owner, ids) == [State.QUE] * 5
    assert [e["seq"] for e in rows(owner)][:5] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("reserve", [0, SMALLEST])
def test_a_journal_is_ready_with_its_next_segment_and_the_reserve_that_it_keeps(
    tmp_path, reserve
):
    place = JournalDir(path=tmp_path, kind="queue", name="q")
    place.active.mkdir()
    dir_fd = os.open(tmp_path, os.O_RDONLY)
    last, author = Position("", 0, 0, 0), Author("0123abcd", 1, "boot")
    with ThreadPoolExecutor(1) as threads:
        journal = Journal(place, dir_fd, author, last, threads, reserve)
        ready = [journal.is_ready]
        for _ in range(4):  # each look begins one thing, or takes in what was begun
            journal.look_again()
            threads.submit(lambda: None).result()
            ready.append(journal.is_ready)
        journal.close()
    os.close(dir_fd)
    assert not (tmp_path / segments.NEXT).exists()
    made, kept = [False, False, True, True, True], [False, False, False, True, True]
    assert ready == (kept if reserve else made)


def test_a_header_that_cannot_be_read_now_is_not_taken_for_none(owner):
    # Without it a journal would seem to go on from no other, and its history to be old.
    owner.submit()
    owner.apply()
    (one,) = history.active_segments(owner.queue.journal_dir)
    assert read_header(one.path) is not None
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        read_header(one.path)


@pytest.mark.parametrize("name", ["7", "9" * 15, "9" * 17, "²" * 16, "x" * 16])
def test_what_is_called_otherwise_is_no_segment_that_is_written_to(owner, name):
    owner.submit()
    owner.spool.commit()
    place = owner.queue.journal_dir
    active = history.active_segments(place)
    (place.active / name).touch()
    assert history.active_segments(place) == active


@pytest.mark.parametrize(
    "name",
    ["{}-x.jsonl", "x-{}.jsonl", "{}-{}.jsonl.new", "{}-{}", "²-{}.jsonl", "²-³.jsonl"],
)
def test_what_is_no_segment_is_no_history(owner, name):
    owner.submit()
    owner.spool.commit()
    owner.spool.journal.seal()
    place, journal = owner.queue.journal_dir, owner.spool.journal_id
    sealed = history.sealed_segments(place, journal)
    (place.history / journal / name.format("9" * 16, "9" * 16)).touch()
    assert history.sealed_segments(place, journal) == sealed


def test_the_place_of_the_journal_is_looked_at_now_and_then(owner):
    """Each look is two stats: a turn that follows at once has none."""
    owner.spool.look_at_place()
    away = owner.queue.journal.rename(owner.queue.path / "away")
    owner.submit()
    begun = time.monotonic()
    is_written = owner.spool.write(last=True)
    assert is_written or time.monotonic() - begun > LOOK
    wait_until(lambda: not owner.spool.write(last=True), 60)
    assert owner.spool.displaced
    owner.submit()
    with pytest.raises(Displaced):
        owner.spool.commit()
    assert b"commit" in next(away.iterdir()).read_bytes()


def test_a_group_is_full_at_its_most_events_and_at_its_most_bytes(owner):
    journal = owner.spool.journal
    owner.spool.commit()
    for number in range(1, GROUP_EVENTS + 1):
        assert not journal.full
        journal.append({"ev": "note", "n": number})
    assert journal.full
    owner.spool.commit()
    assert not journal.full
    for spare in (1, 0):
        journal.append({"ev": "note", "pad": ""})
        room = GROUP_BYTES - 2 * journal._bytes - spare
        journal.append({"ev": "note", "pad": "x" * room})
        assert journal.full == (not spare)
        owner.spool.commit()


def test_a_journal_is_whole_until_some_of_it_is_gone(owner):
    place, journal = owner.queue.journal_dir, owner.spool.journal_id
    for _ in range(3):
        owner.submit()
        owner.spool.commit()
        owner.spool.journal.seal()
    assert history.is_whole(place, journal)
    sealed = history.sealed_segments(place, journal)
    for gone in (sealed[1], sealed[0]):
        kept = gone.path.rename(owner.queue.path / "kept")
        assert not history.is_whole(place, journal)
        kept.rename(gone.path)
    assert history.is_whole(place, journal)
    (place.history / "another").mkdir()
    assert not history.is_whole(place, journal)


def test_a_journal_that_is_closed_has_no_file_open(owner):
    owner.submit()
    owner.spool.commit()
    owner.stop()
    assert not opened_below(owner.queue.path)
    owner.open()


def opened_below(path):
    """Return the files below a directory that this process has open."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [link for link in links if link.startswith(f"{path}/")]
