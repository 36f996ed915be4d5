"""One try: param1 whom to tell, param2 the queue, param3 the matter, param4 the story.

The directory of the queue is opened once, and never through a link; its settings, which say
who may be told, and the log that is shown are both read below it. So whatever the path
leads to a moment later, a log is shown only to those whom the settings beside it name.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rq import config, names
from rq.builtin.notice import letter, stories
from rq.builtin.notice.stories import Story
from rq.builtin.webhook import post, settings, tries
from rq.config import notices
from rq.config.notices import Matter
from rq.config.recipients import no_mail
from rq.config.settings import QueueConfig, RootConfig
from rq.errors import (
    BadConfig,
    BadInput,
    NotPlain,
    OutcomeUnknown,
    RQError,
    Unreachable,
)
from rq.files import beneath
from rq.layout import JOB, STDIO_LOG, QueueDir, Root
from rq.outbound import connection
from rq.outbound.addresses import Internal
from rq.rpc import client
from rq.scripts import python as script
from rq.scripts.pipe import Verb
from rq.spool import folders
from rq.words import visible
from rq.words.states import COUNTED

_ASK = 30.0  # seconds
_TEST = "test"  # a matter
# What no queue tells but the root, and whom its settings name for it.
_OF_ROOT: Mapping[str, Callable[[RootConfig], Sequence[str]]] = {
    "daily": lambda main: main.daily["to"] if main.daily else (),
    "trouble": lambda main: main.on_trouble,
}
_TOLD_AS = {"overdue": Matter.ERR}  # of timers: for whom failures are told
LINES = 40  # of a log that an err shows
TAIL = 8192  # bytes that these may have
OUTPUT = 65536  # bytes of output that are told whole; of more the two ends
TIMEOUT = 60.0  # seconds that sendmail may take
_SAID = 2000  # bytes of what it says
# Of sysexits.h those that another try does not change: no such user or host, wrong data.
_FOR_GOOD = frozenset({64, 65, 67, 68, 77, 78})
_REMOVED = (
    "{target:.80} is told nothing: the settings of queue {queue} do not name it now"
)


def _verdict() -> tuple[Verb, str]:
    """Try once; what is tried again waits longer each time."""
    verb, text = _try()
    return tries.again(text) if verb is Verb.RESEND else (verb, text)


def _try() -> tuple[Verb, str]:
    named, queue, matter, text = script.params()
    root = config.find_root(None)
    try:
        notices.checked_target(named)
        story = stories.read(names.queue_name(queue), matter, text)
    except (BadInput, ValueError) as error:
        return Verb.ERR, str(error)
    place = root.queue(story.queue)
    if place.path.is_symlink():
        return Verb.ERR, f"{place.path} is a symbolic link, which notices do not follow"
    if not place.config.exists():
        return Verb.ERR, f"there is no queue {story.queue} any more"
    try:
        with beneath.top(place.path, os.O_NOFOLLOW) as dir_fd:
            return _bring(root, dir_fd, story, named)
    except (BadConfig, OSError) as error:
        return Verb.RESEND, str(error)


def _bring(root: Root, dir_fd: int, story: Story, named: str) -> tuple[Verb, str]:
    """Bring it to whom the settings in the directory of its queue still name so."""
    main, place = config.read_root(root), root.queue(story.queue)
    own = config.read_queue(place, dir_fd)
    target = _still_told(own, main, story, named)
    if not target:
        return Verb.ERR, _REMOVED.format(target=named, queue=story.queue)
    log = _last_lines(place, dir_fd, story)
    kind, _, to = target.partition(":")
    if kind == "mail":
        return _mail(main, to, story, log)
    if kind == "queue":
        return _hand_on(root, to, story, log)
    return _post(root, target, story, log)


def _still_told(own: QueueConfig, main: RootConfig, story: Story, target: str) -> str:
    """Return whom of those for whom it was owed the settings still name, "" for none:
    who is told nothing is shown no log either. A test is for all whom they name."""
    if story.matter in _OF_ROOT:
        return target if target in _OF_ROOT[story.matter](main) else ""
    wanted = notices.wanted(partial(getattr, own), partial(getattr, main))
    matter = _TOLD_AS.get(story.matter, story.matter)
    about = [n for m, n in wanted.items() if matter in (m, _TEST)]
    return notices.still_told(about, target)


def _key() -> str:
    """Return what names this notice for ever, whatever is tried how often."""
    return os.environ.get("RQ_FULL_MSG_ID", "")


def _mail(main: RootConfig, to: str, story: Story, log: str) -> tuple[Verb, str]:
    why = no_mail(main.sendmail)
    if why:
        return Verb.ERR, why
    try:
        data = letter.mail(to, story, log, _key(), main.host)
    except ValueError as error:
        return Verb.ERR, f"{to!r:.80} is no address of mail: {error}"
    return _hand_over(main.sendmail, data)


def _hand_over(program: str, letter: bytes) -> tuple[Verb, str]:
    """Return what to report: done, err for good, or resend with the reason."""
    try:
        process = subprocess.Popen(
            [program, "-t", "-oi"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return Verb.RESEND, f"{program} cannot be started: {error.strerror}"
    try:
        _, said = process.communicate(letter, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Verb.RESEND, f"{program} has not ended within {TIMEOUT:g} s"
    why = visible.last_line(said[-_SAID:].decode(errors="replace"), 200)
    status = process.returncode
    if status == 0:
        return Verb.DONE, f"{program} has taken it"
    how = f"exit {status}" if status > 0 else f"signal {-status}"
    text = f"{program} refused it ({how}){': ' if why else ''}{why}"
    return (Verb.ERR if status in _FOR_GOOD else Verb.RESEND), text


def _hand_on(root: Root, to: str, story: Story, log: str) -> tuple[Verb, str]:
    """Send a message to a queue, once: it remembers the key."""
    fields = {
        "dest": to,
        "param1": story.queue,
        "param2": story.matter,
        "param3": letter.subject(story, root.path.name),
        "param4": json.dumps(letter.as_json(story, log), ensure_ascii=False),
        "x_notice": f"{story.queue}/{story.matter}",
        "_key": f"notice/{_key()}",
    }
    try:
        path = root.queue(to)
        if not path.config.exists():
            return Verb.RESEND, f"there is no queue {to}"
        reply = client.ask(path.socket, "create_message", fields, timeout=_ASK)
        return Verb.DONE, str(client.demanded(reply))
    except (Unreachable, OutcomeUnknown) as error:
        return Verb.RESEND, f"queue {to} does not answer: {error}"
    except RQError as error:
        return Verb.RESEND, f"queue {to} says: {error}"


def _post(root: Root, url: str, story: Story, log: str) -> tuple[Verb, str]:
    try:
        chosen = settings.read(root, url)
        data = letter.posted(story, log)
        name = "msg_" + _key().rpartition("/")[2].replace(".", "_")
        answer = post.signed(url, "application/json", data, name, chosen)
        verb, text = tries.decide(answer, script.count(), random.random())
        return (verb, text) if verb is not Verb.RESEND else (verb, _reason(text))
    except Internal as error:
        return Verb.ERR, str(error)
    except OSError as error:
        return Verb.RESEND, connection.reason(error)
    except (RQError, ValueError) as error:
        return Verb.RESEND, str(error) or type(error).__name__


def _reason(text: str) -> str:
    """Return the reason of a report that asks for another try."""
    return text.partition("-")[2]


# ---- what is shown of the log of its message: bounded, and clean of controls


def _last_lines(queue: QueueDir, dir_fd: int, story: Story) -> str:
    """Return what is to be shown; "" when there is nothing, or it cannot be read.
    `dir_fd`: the directory of the queue, held open since its settings were read."""
    msg_id = story.text("msg_id")
    for state in COUNTED if msg_id else ():
        file = folders.file_of(queue, state, msg_id, f"{JOB}/{STDIO_LOG}")
        try:
            fd = file.open_at(dir_fd)
        except (OSError, NotPlain):
            continue
        try:
            return _read(fd, story)
        except OSError:
            return ""
        finally:
            os.close(fd)
    return ""


def _read(fd: int, story: Story) -> str:
    size = os.fstat(fd).st_size
    begin, end = _part(story.values.get("printed"), size)
    if story.matter != "output":
        begin = max(begin, end - TAIL)
        return "\n".join(_clean(os.pread(fd, end - begin, begin)).splitlines()[-LINES:])
    if end - begin <= OUTPUT:
        return _clean(os.pread(fd, end - begin, begin))
    half = OUTPUT // 2
    head, tail = os.pread(fd, half, begin), os.pread(fd, half, end - half)
    left = end - begin - OUTPUT
    return f"{_clean(head)}\n[… {left:,} bytes are left out …]\n{_clean(tail)}"


def _part(printed: object, size: int) -> tuple[int, int]:
    """Return which bytes of a log an attempt has printed; all, if that is not known."""
    if isinstance(printed, list) and len(printed) == 2:
        begin, end = printed
        if isinstance(begin, int) and isinstance(end, int) and 0 <= begin <= end:
            return min(begin, size), min(end, size)
    return 0, size


def _clean(written: bytes) -> str:
    return visible.uncoloured(written.decode(errors="replace")).strip("\n")


def main() -> int:
    """Make one try."""
    return tries.run(_verdict)


if __name__ == "__main__":
    sys.exit(main())
