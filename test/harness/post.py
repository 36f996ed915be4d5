"""A root whose mail goes to a program that keeps it: what people would get."""

from __future__ import annotations

import email.policy
import json
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Any, cast

from harness.checkout import CHECKOUT
from harness.queues import SETTINGS, RunningQueue
from rq.layout import Root

SCRIPT = CHECKOUT / "rq/bundled/notice/run"
# Keeps a letter under a name that nobody else has, whole or not at all.
SENDMAIL = """#!/bin/sh
[ -f "{box}/refuse" ] && {{ echo "mailbox unavailable" >&2; exit "$(cat "{box}/refuse")"; }}
echo "$*" >> "{box}/argv"
cat > "{box}/.$$" && mv "{box}/.$$" "{box}/$(date +%s%N).$$"
"""


class Post:
    """Where mail goes."""

    def __init__(self, root: Path, **settings: Any) -> None:
        """`settings` go into the root's config."""
        self.box = root / "box"
        self.box.mkdir(parents=True)
        self.program = root / "sendmail"
        self.program.write_text(SENDMAIL.format(box=self.box))
        self.program.chmod(0o755)
        config = {**SETTINGS, "sendmail": str(self.program), **settings}
        Root(root).config_dir.mkdir(parents=True, exist_ok=True)
        Root(root).config.write_text(json.dumps(config))

    def raw(self) -> list[bytes]:
        """Return the letters, the first first."""
        names = (name for name in self.box.iterdir() if name.name[:1].isdigit())
        return [name.read_bytes() for name in sorted(names)]

    def letters(self) -> list[EmailMessage]:
        parser = BytesParser(policy=email.policy.default)
        return [cast(EmailMessage, parser.parsebytes(raw)) for raw in self.raw()]

    def bodies(self) -> list[str]:
        return [letter.get_content() for letter in self.letters()]

    def subjects(self) -> list[str]:
        return [str(letter["Subject"]) for letter in self.letters()]


def notice_queue(root: Path) -> RunningQueue:
    """Return the queue that brings notices, not yet started."""
    settings = json.loads((SCRIPT.parent / "config.json").read_text())
    return RunningQueue(root, "notice", SCRIPT, **settings)
