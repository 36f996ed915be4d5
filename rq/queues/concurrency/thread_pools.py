"""The threads of a queue beside its loop, apart from those of its journal: what takes long
in one kind of work keeps nobody from another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

FILES, LOOKS = 8, 4  # threads


class ThreadPools:
    """`files` copies, hashes and syncs attachments; `looks` lists and reads folders."""

    def __init__(self) -> None:
        self.files = ThreadPoolExecutor(FILES, "rq-files")
        self.looks = ThreadPoolExecutor(LOOKS, "rq-looks")

    def close(self) -> None:
        """Begin nothing more, and wait for what was begun."""
        for pool in (self.files, self.looks):
            pool.shutdown(cancel_futures=True)
