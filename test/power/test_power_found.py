"""States that the enumeration has found broken, and that are mended: one test each."""

from __future__ import annotations

from harness.spool import Owner


def test_what_a_kill_left_unsynced_and_a_power_cut_then_took_stops_no_start(tmp_path):
    owner = Owner(tmp_path)
    owner.open()
    owner.submit()
    owner.spool.commit()
    segment = owner.queue.journal / owner.spool.journal.segment
    synced = segment.read_bytes()
    late = owner.submit()
    assert owner.spool.journal.write()
    aside = tmp_path / "aside"
    aside.hardlink_to(segment)
    owner.again()
    owner.crash()
    # What was never synced is gone again, and so is the removal of the old file.
    aside.rename(segment)
    segment.write_bytes(synced)
    owner.open()
    assert owner.spool.find(late) == "que"
    owner.apply()
    owner.again()
    assert not segment.exists()
    assert owner.spool.find(late) == "que"
