"""The words of a script in one run: the first completion word decides, the last text is
shown."""

from __future__ import annotations

from dataclasses import dataclass

from rq.errors import BadInput
from rq.message.limits import Over
from rq.scripts import pipe
from rq.scripts.pipe import COMPLETIONS, Report, Verb


@dataclass(slots=True)
class Said:
    """What a script has said in one run; a new one for each run."""

    word: Verb | None = None
    text: str = ""
    delay: float = 0.0
    waits_for: str | None = None  # NAME of `later`: its messages wait for `delay`
    dest: str | None = None  # where a copy goes
    unreadable: str | None = None
    by: str | None = None  # who cancelled it
    result: str | None = None  # a value for programs; the last one counts
    over: Over | None = None  # the limit for which it was ended

    def hear(self, report: Report) -> None:
        """Take one report."""
        if report.verb is Verb.RESULT:
            self.result = report.text
            return
        self.text = report.text
        if report.verb not in COMPLETIONS or self.word is not None:
            return
        self.word = report.verb
        try:
            self._hear_more(report)
        except BadInput as error:
            self.word, self.unreadable = Verb.ERR, str(error)

    def _hear_more(self, report: Report) -> None:
        if report.verb is Verb.RESEND:
            self.delay = pipe.parse_resend(report.text).delay
        elif report.verb is Verb.LATER:
            later = pipe.parse_later(report.text)
            self.delay, self.waits_for = later.delay, later.waits_for
        elif report.verb is Verb.FORWARD:
            self.dest = pipe.parse_forward(report.text)
            self.text = f"forwarded to {self.dest}"
