"""The threads of a queue, other than its journal's. Each kind of work has its own, so that
slow work of one kind does not delay the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

FILES, LOOKS = 8, 4  # threads


class ThreadPools:
    """`files` copies, hashes and syncs attachments; `looks` lists and reads folders."""

    def __init__(self) -> None:
        self.files = ThreadPoolExecutor(FILES, "rq-files")
        self.looks = ThreadPoolExecutor(LOOKS, "rq-looks")

    def close(self) -> None:
        """Start no more work, and wait for what runs."""
        for pool in (self.files, self.looks):
            pool.shutdown(cancel_futures=True)
