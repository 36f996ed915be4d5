"""Removes the folders of messages that are handed in, in a thread: a disk may take longer for
that than the script took for its work."""

from __future__ import annotations

import asyncio
import logging

from rq.logs import fields
from rq.work.folder import Folder

PAUSE = 0.1  # seconds in which folders gather

log = logging.getLogger(__name__)


class Sweeper:
    """The folders that are to go."""

    def __init__(self) -> None:
        self._folders: list[Folder] = []
        self._task: asyncio.Task[None] | None = None

    def remove(self, folder: Folder) -> None:
        """Remove a folder, soon."""
        self._folders.append(folder)
        if self._task is None:
            self._task = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while self._folders:
            await asyncio.sleep(PAUSE)
            folders, self._folders = self._folders, []
            await loop.run_in_executor(None, _remove_all, folders)
        self._task = None

    async def ended(self) -> None:
        """Wait until all are gone."""
        if self._task is not None:
            await self._task


def _remove_all(folders: list[Folder]) -> None:
    for folder in folders:
        if folder.remove_plain():
            continue
        try:
            folder.remove()
        except FileNotFoundError:
            continue
        except OSError as error:
            log.error(
                "a folder stays until the next start: %s",
                fields(folder=folder.name, reason=error.strerror or error),
            )
