"""Hands in how attempts ended: first the log, then the results, then the word."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from rq.errors import BadInput, Refused, RQError, TooLarge
from rq.logs import fields
from rq.scripts.pipe import Verb
from rq.words.nesting import Json
from rq.work import folder as folders
from rq.work import holding, notes
from rq.work.attempt import Attempt
from rq.work.folder import Folder, ResultFile
from rq.work.holding import Result
from rq.work.log_sender import TRIES, LogSender
from rq.work.notes import Note
from rq.work.place import Place
from rq.work.service import Service
from rq.work.words import Words

_WITH_RESULTS = frozenset({Verb.DONE, None})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How an attempt has ended, and what goes with it."""

    folder: Folder
    finish: dict[str, Json]
    sender: LogSender


class Delivery:
    """Hands in ends."""

    def __init__(self, place: Place, service: Service, words: Words) -> None:
        self._place = place
        self.service = service
        self.words = words

    def sender(
        self, token: str, folder: Folder, begin: int = 0, sent: int = 0
    ) -> LogSender:
        """Return what sends the log of an attempt."""
        read = functools.partial(folders.read_piece, folder, folder.log)

        send = functools.partial(self.service.log, token)
        return LogSender(send, read, begin, sent)

    async def hand_in(self, attempt: Attempt) -> None:
        """Hand in the end of an attempt, once its host can be reached; RQError when
        its queue will never take it."""
        finish = attempt.close(holding.now())
        await self._deliver(
            End(folder=attempt.folder, finish=finish, sender=attempt.sender)
        )

    def keep(self, attempt: Attempt) -> None:
        """Keep on disk what is not handed in yet."""
        attempt.is_kept = True
        if not attempt.is_laid_out:
            with contextlib.suppress(OSError):
                attempt.lay_out()
        note = Note(
            folder=attempt.folder.name,
            finish=attempt.end,
            log_from=attempt.sender.begin_at,
            log_to=attempt.sender.end_at or 0,
            log_sent=attempt.sender.sent,
        )
        try:
            notes.write(self._place, note)
        except OSError as error:
            log.error(
                "the end of a message is kept in memory only: %s",
                fields(folder=note.folder, reason=error.strerror or error),
            )

    async def hand_in_note(self, note: Note) -> None:
        """Hand in what an earlier agent has kept, and remove it."""
        folder = Folder(self._place, note.folder)
        token = str(note.finish["token"])
        sender = self.sender(token, folder, note.log_from, note.log_sent)
        sender.end(note.log_to)
        end = End(folder=folder, finish=note.finish, sender=sender)
        await self._deliver(end)
        await asyncio.get_running_loop().run_in_executor(None, folder.remove)

    async def _deliver(self, end: End) -> None:
        """RQError when its queue will never take it."""
        await end.sender.flush()
        finish = end.finish
        if finish["word"] in _WITH_RESULTS and end.folder.has(folders.RESULTS):
            finish = await self._with_results(end)
        result = await self._say(finish)
        if not result.ok and not result.is_lost:
            refusal = f"its end was refused: {result.text}"
            token = {"token": finish["token"], "word": str(Verb.ERR), "text": refusal}
            result = await self._say(token)
        if not result.ok:
            log.warning(
                "the end of a message came too late: %s",
                fields(folder=end.folder.name, reason=result.text),
            )

    async def _say(self, finish: Mapping[str, Json]) -> Result:
        """Say how an attempt has ended; return also why that is no request at all, say
        because a name in it is too long."""
        try:
            return await self.words.finishes.ask(finish)
        except (BadInput, Refused, TooLarge) as error:
            return Result(ok=False, text=str(error))

    # ---- results

    async def _with_results(self, end: End) -> dict[str, Json]:
        """Hand in the files of `results/`; return the end with their digests."""
        try:
            files = await folders.results(end.folder)
            for entry in files:
                await self._upload(end, entry)
        except RQError as error:
            refused = f"its results cannot be handed in: {error}"
            return {**end.finish, "word": str(Verb.ERR), "text": refused}
        if not files:
            return end.finish
        digests = {entry.file.name: entry.file.sha256 for entry in files}
        return {**end.finish, "files": digests}

    async def _upload(self, end: End, result: ResultFile) -> None:
        """Send a file, a piece after the other; RQError when it is not taken."""
        token, read = (
            str(end.finish["token"]),
            functools.partial(folders.read_piece, end.folder, result.path),
        )
        at = tries = 0
        while tries < TRIES:
            piece = read(at)[: result.file.size - at]
            answer = await self.service.upload(token, result.file, at, piece)
            if answer.ok:
                return
            if answer.have is None:
                break
            tries = 0 if answer.have > at else tries + 1
            at = answer.have
        raise Refused(f"{result.file.name}: {answer.text}")
