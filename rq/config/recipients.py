"""Whether those whom queues tell of how they go can be reached: by mail, or in a queue."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rq import config
from rq.config import notices
from rq.config.settings import QueueConfig, RootConfig
from rq.errors import BadConfig
from rq.layout import Root


def warnings(root: Root, main: RootConfig) -> list[str]:
    """Return a sentence for each recipient that cannot be reached, as it is now."""
    queues = dict(_configs(root))
    who = ["config/config.json"] if _wants_mail(main) else []
    who += [f"queue {name}" for name, own in queues.items() if _wants_mail(own)]
    why = no_mail(main.sendmail) if who else ""
    sentences = (
        [f"{why}; {', '.join(who[:5])} would tell people by mail"] if why else []
    )
    sentences += [f"config/config.json: {why}" for why in lacking(root, main)]
    for name, own in queues.items():
        sentences += [f"queue {name}: {why}" for why in lacking(root, own)]
    return sentences


def no_mail(program: str) -> str:
    """Return in a sentence that there is no program that takes mail; "" if there is."""
    if os.access(program, os.X_OK) and os.path.isfile(program):
        return ""
    return (
        f"no mail can be sent: there is no program {program}; install one that brings a "
        "sendmail (postfix, msmtp-mta, …), or name it in `sendmail` of config/config.json"
    )


def _wants_mail(settings: RootConfig | QueueConfig) -> bool:
    values = (getattr(settings, name) for name in notices.SETTINGS)
    if any(to.startswith("mail:") for to in _of_letter(settings)):
        return True
    return any(value is not None and value["mail"] for value in values)


def _of_letter(settings: RootConfig | QueueConfig) -> list[str]:
    """Return whom the letter of the morning is for."""
    letter = settings.daily if isinstance(settings, RootConfig) else None
    return letter["to"] if letter else []


def lacking(root: Root, settings: RootConfig | QueueConfig) -> list[str]:
    """Return a sentence for each setting that tells a queue which does not exist."""
    by_setting = {
        setting: notice["queue"]
        for setting in notices.SETTINGS
        if (notice := getattr(settings, setting))
    }
    queues = [
        to.removeprefix("queue:")
        for to in _of_letter(settings)
        if to.startswith("queue:")
    ]
    return [
        f"{setting} tells queue {name}, which does not exist: make it (`rq queue "
        f"new {name}`), or change {setting}"
        for setting, name in [
            *by_setting.items(),
            *(("daily", queue) for queue in queues),
        ]
        if name and not root.queue(name).config.exists()
    ]


def _configs(root: Root) -> Iterator[tuple[str, QueueConfig]]:
    """Give queues and their own configs; what cannot be read is left out, for others say
    so."""
    try:
        names = sorted(os.listdir(root.queues))
    except OSError:
        return
    words = [setting.encode() for setting in notices.SETTINGS]
    for name in names:
        try:
            with open(f"{root.queues}/{name}/config.json", "rb") as file:
                content = file.read()
            # Of thousands few tell anybody: the others are not read as a config is.
            if b"\\u" in content or any(word in content for word in words):
                yield name, config.read_queue(root.queue(name))
        except (OSError, BadConfig, ValueError):
            continue
