"""The log of a Delta table, while others write to it."""

from __future__ import annotations

import threading

from rq.spark import delta_log


def test_a_sync_passes_over_what_others_write_and_rename(tmp_path):
    log = tmp_path / delta_log.LOG
    log.mkdir()
    (log / "0.json").write_text("{}\n")
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            for number in range(20):
                (log / f"{number}.tmp").touch()
            for number in range(20):
                (log / f"{number}.tmp").unlink()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            delta_log.sync(tmp_path, since=0.0)
    finally:
        is_over.set()
        writer.join()
