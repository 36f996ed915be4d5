"""Lines of files for DuckDB: some threads read, each scan of the table reads anew."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rq.spark import attachments
from rq.spark.attachments import File
from rq.spark.remote import Allow

if TYPE_CHECKING:
    import pyarrow as pa

Batches = Callable[[], "Iterator[pa.RecordBatch]"]
Way = Callable[[File, Allow], "Iterator[pa.RecordBatch]"]
_Way = Callable[[File], "Iterator[pa.RecordBatch]"]
Step = Callable[["pa.RecordBatch"], "pa.RecordBatch"]
_AHEAD = 2  # batches of each thread that wait to be taken
_LOOK = 0.2  # seconds between looks whether anybody still takes them


class Stream:
    """A table for DuckDB whose rows are made when it asks for them."""

    def __init__(self, schema: pa.Schema, batches: Batches) -> None:
        self._schema = schema
        self._batches = batches
        self.failed: Exception | None = None  # why the last scan has ended

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self._schema, self._watched())
        return reader.__arrow_c_stream__(requested_schema)

    def _watched(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
        except Exception as error:
            self.failed = error  # DuckDB keeps no more than its text
            raise


class Files:
    """Some files, read by some threads."""

    def __init__(
        self,
        every: Sequence[File],
        may: Allow,
        threads: int,
        way: Way = attachments.batches,
    ) -> None:
        self._every = sorted(every, key=lambda file: -file.size)
        self._way: _Way = lambda file: way(file, may)
        self._threads = threads
        self.ended = 0  # files that the last scan has read to their ends
        self.lines = 0  # that it has read

    def batches(self, step: Step) -> Iterator[pa.RecordBatch]:
        """Read all files; give what `step` makes of each piece, in any order."""
        self.ended = self.lines = 0
        count = min(self._threads, len(self._every))

        def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
            self.lines += batch.num_rows
            return step(batch)

        reading = _Reading(self._every, self._way, counted, _AHEAD * count)
        threads = [
            threading.Thread(target=reading.run, daemon=True) for _ in range(count)
        ]
        left = len(self._every)  # of this scan: there may be others at once
        for thread in threads:
            thread.start()
        try:
            while left:
                piece = reading.pieces.get()
                if isinstance(piece, Exception):
                    raise piece
                if piece is None:
                    left -= 1
                    self.ended += 1
                else:
                    yield piece
        finally:
            reading.is_over.set()

    def __len__(self) -> int:
        return len(self._every)


class _Reading:
    """What the threads of one scan share."""

    def __init__(
        self, every: Sequence[File], way: _Way, step: Step, ahead: int
    ) -> None:
        self._todo: queue.SimpleQueue[File] = queue.SimpleQueue()
        for file in every:
            self._todo.put(file)
        self._way, self._step = way, step
        # A batch; None: a file has ended; what it failed with.
        self.pieces: queue.Queue[pa.RecordBatch | Exception | None] = queue.Queue(
            maxsize=ahead
        )
        self.is_over = threading.Event()

    def run(self) -> None:
        """Read file after file until there is none, or nobody takes what is read."""
        try:
            while not self.is_over.is_set():
                self._read(self._todo.get_nowait())
        except queue.Empty:
            return
        except Exception as error:  # noqa: BLE001 - raised again in the thread that takes it
            self._put(error)

    def _read(self, file: File) -> None:
        for batch in self._way(file):
            if not self._put(self._step(batch)):
                return
        self._put(None)

    def _put(self, piece: pa.RecordBatch | Exception | None) -> bool:
        while not self.is_over.is_set():
            try:
                self.pieces.put(piece, timeout=_LOOK)
            except queue.Full:
                continue
            return True
        return False
