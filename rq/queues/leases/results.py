"""Takes the files that attempts elsewhere hand in, and verifies those they end with."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor

from rq.config.checks import RESULT_FILES, Pull
from rq.errors import Busy, Refused, TooLarge
from rq.message.fields import Attachment
from rq.queues.attempts.lease import Lease
from rq.spool import Spool, results


class Results:
    """The result files of one queue's leases."""

    def __init__(
        self, spool: Spool, loop: asyncio.AbstractEventLoop, files: Executor
    ) -> None:
        """`files`: threads that copy and hash."""
        self._spool = spool
        self._loop = loop
        self._files = files
        self._coming: dict[Lease, dict[str, int]] = {}  # files and bytes being copied

    async def take(
        self, lease: Lease, name: str, source: int, pull: Pull
    ) -> Attachment:
        """Copy an open file into the folder of a leased message, durably. TooLarge when
        its attempt has handed in as much as `pull` allows."""
        self._check_name(lease, name)
        spool, msg_id = self._spool, lease.msg_id
        with (
            results.opened(spool, msg_id, lease.held.attempt) as place,
            spool.working_on(msg_id),
        ):
            size = os.fstat(source).st_size
            sizes = results.sizes(place) | self._coming.get(lease, {}) | {name: size}
            _check_room(pull, name, sizes)
            lease.hands_in = True
            with self._copying(lease, name, size):
                return await self._loop.run_in_executor(
                    self._files, results.take, place, source, name, size
                )

    @contextlib.contextmanager
    def _copying(self, lease: Lease, name: str, size: int) -> Iterator[None]:
        """Count a file while it is not there yet."""
        coming = self._coming.setdefault(lease, {})
        if name in coming:
            raise Busy(f"{name} is being handed in: ask again")
        coming[name] = size
        try:
            yield
        finally:
            del coming[name]
            if not coming:
                del self._coming[lease]

    async def verified(
        self, lease: Lease, wanted: Mapping[str, str]
    ) -> dict[str, Attachment]:
        """Return files that were handed in as the attachments that they will be; they
        are durable. NotWhole: one of them is not what it should be."""
        if len(wanted) > RESULT_FILES:
            raise TooLarge(f"an attempt hands in at most {RESULT_FILES} files")
        for name in wanted:
            self._check_name(lease, name)
        spool, msg_id = self._spool, lease.msg_id
        with spool.working_on(msg_id):
            return await self._loop.run_in_executor(
                self._files,
                results.verify,
                spool.dir_fd,
                msg_id,
                lease.held.attempt,
                wanted,
            )

    def _check_name(self, lease: Lease, name: str) -> None:
        message = lease.message or self._spool.read(lease.msg_id)
        if name in message.attachments:
            raise Refused(
                f"a result cannot be called {name}: the message has an attachment of "
                "that name"
            )

    def drop(self, lease: Lease) -> None:
        """Remove what an attempt has handed in that was not done."""
        if lease.hands_in:
            results.drop(self._spool, lease.msg_id, lease.held.attempt)


def _check_room(pull: Pull, name: str, sizes: Mapping[str, int]) -> None:
    """TooLarge when a file is more than its attempt may hand in; `sizes` has it, too."""
    if len(sizes) > pull["result_files"]:
        raise TooLarge(
            f"{name} is one file too many: an attempt hands in at most "
            f"{pull['result_files']} (pull.result_files)"
        )
    if (total := sum(sizes.values())) > pull["result_bytes"]:
        raise TooLarge(
            f"with {name} the attempt would have handed in {total} bytes, at most "
            f"{pull['result_bytes']} are taken (pull.result_bytes)"
        )
