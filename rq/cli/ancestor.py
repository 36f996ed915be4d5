"""The verbs of the Ruby RQ: `RESULT TEXT` on one line, exit 0 when RESULT is `ok`, else 1."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from rq import names
from rq.cli import owner, place
from rq.cli.named_files import FRESH, Files
from rq.cli.owner import Reply
from rq.errors import BadInput
from rq.layout import Root
from rq.replies import MessageView
from rq.words.nesting import Json

RELAY = "relay"
_MESSAGE_OPTIONS = (
    "dest",
    "src",
    "count",
    "max_count",
    "param1",
    "param2",
    "param3",
    "param4",
    "due",
)
# What the owner is asked by a verb.
_NEW = {"sendmesg": "create_message", "prepmesg": "prep_message"}
_ABOUT = {
    "commitmesg": "commit_message",
    "state": "get_message_state",
    "clone": "clone_message",
}
_FIELD_OF = {  # and which field of its answer is printed
    "statusmesg": ("get_message_status", "status"),
    "statuscountmesg": ("get_message", "count"),
}
_ATTACH_OPTIONS = ("msg_id", "pathname", "name")
_NEVER_A_VALUE = frozenset({"relay-ok", "local_fs_only", "help"})


def options(words: list[str], option_names: tuple[str, ...]) -> dict[str, str | bool]:
    """Return `--k=v`, `--k v` and bare `--k`; only with = may a value start with --."""
    values: dict[str, str | bool] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("--"):
            continue
        name, has_value, value = word[2:].partition("=")
        if name not in option_names and name not in _NEVER_A_VALUE:
            raise BadInput(f"unknown option --{name}")
        if has_value:
            values[name] = value
        elif name in _NEVER_A_VALUE or at == len(words) or words[at].startswith("--"):
            values[name] = True
        else:
            values[name] = words[at]
            at += 1
    return values


def single_que(root: Root, words: list[str]) -> int:
    given = options(words, (*_MESSAGE_OPTIONS, "force_remote"))
    if _wants_help(given):
        return _usage("single_que", "--dest QUEUE [--param1 ..4 --due --src ...]")
    fields = _fields(given)
    return _tell(
        owner.ask(root, names.queue_name(str(fields["dest"])), "single_que", fields)
    )


def new_message(verb: str, root: Root, words: list[str]) -> int:
    given = options(words, (*_MESSAGE_OPTIONS, "force_remote"))
    if _wants_help(given):
        return _usage(
            verb,
            "--dest QUEUE|URL [--src --count --max_count --param1 ..4 --due "
            "--force_remote --relay-ok]",
        )
    fields = _fields(given)
    queue = target(str(fields["dest"]), given)
    return _tell(owner.ask(root, queue, _NEW[verb], fields))


def target(dest: str, given: Mapping[str, object]) -> str:
    """Return the local queue for `dest`: a URL goes through relay, when allowed."""
    if not names.is_remote(dest):
        return names.queue_name(dest)
    if not given.get("relay-ok"):
        raise BadInput(f"{dest} is a URL: say --relay-ok to send it there by the relay")
    return RELAY


def _fields(given: Mapping[str, str | bool]) -> dict[str, str | bool]:
    fields: dict[str, str | bool] = {}
    for name in _MESSAGE_OPTIONS:
        value = given.get(name)
        if value is True:
            raise BadInput(f"--{name} needs a value")
        if value is not None:
            fields[name] = value
    if "dest" not in fields:
        raise BadInput("--dest is missing: the name of a queue")
    if given.get("force_remote"):
        fields["force_remote"] = True
    return fields


def named(words: list[str]) -> list[str]:
    """Return the file that the words of `attachmesg` name."""
    pathname = options(words, _ATTACH_OPTIONS).get("pathname")
    return [pathname] if isinstance(pathname, str) else []


def attachmesg(root: Root, words: list[str], files: Files = FRESH) -> int:
    given = options(words, _ATTACH_OPTIONS)
    if _wants_help(given):
        return _usage("attachmesg", "--msg_id ID --pathname P [--name N]")
    queue, short = _msg_id(given)
    pathname = given.get("pathname")
    if not isinstance(pathname, str):
        raise BadInput("--pathname is missing: the file to attach")
    name = given.get("name")
    given_name = name if isinstance(name, str) else ""
    reply = attach(root, (queue, short), pathname, files, given_name)
    result, text = reply[0], reply[1]
    full = place.root_config(root).full_id(queue, short)
    print(f"{result} {text} for Message: {full} attachment")
    return 0 if result == "ok" else 1


def attach(
    root: Root, message: tuple[str, str], pathname: str, files: Files, name: str = ""
) -> Reply:
    """Open a file and pass its descriptor, so that the queue needs no right to read it."""
    queue, msg_id = message
    fd = files.open(pathname)
    request = {"msg_id": msg_id, "pathname": os.path.abspath(pathname)}
    request["name"] = name or os.path.basename(pathname)
    try:
        return owner.ask(root, queue, "attach_message", request, [fd])
    finally:
        os.close(fd)


def attachstatusmesg(root: Root, words: list[str]) -> int:
    reply = _answer_about(root, "attachstatusmesg", "get_message", words)
    if reply is None or reply[0] != "ok":
        return _tell(reply)
    attachments = cast(MessageView, reply[1]).get("_attachments") or {}
    print(f"ok {len(attachments)}")
    for name, entry in sorted(attachments.items()):
        print(f"{name} {entry['md5']} {entry['size']} {entry['path']}")
    return 0


def about(verb: str, root: Root, words: list[str]) -> int:
    return _tell(_answer_about(root, verb, _ABOUT[verb], words))


def _answer_about(
    root: Root, verb: str, command: str, words: list[str]
) -> Reply | None:
    """Return the owner's answer about a message; None where help was asked for."""
    given = options(words, ("msg_id",))
    if _wants_help(given):
        _usage(verb, "--msg_id ID")
        return None
    queue, short = _msg_id(given)
    return owner.ask(root, queue, command, {"msg_id": short})


def field_of(verb: str, root: Root, words: list[str]) -> int:
    command, name = _FIELD_OF[verb]
    reply = _answer_about(root, verb, command, words)
    if reply is None or reply[0] != "ok":
        return _tell(reply)
    fields = cast(Mapping[str, Json], reply[1])
    return _tell(["ok", fields.get(name)])


def _msg_id(given: Mapping[str, str | bool]) -> tuple[str, str]:
    text = given.get("msg_id")
    if not isinstance(text, str):
        raise BadInput("--msg_id is missing: the full id of a message")
    queue, short = names.split_url(text)
    if short is None:
        raise BadInput(f"--msg_id: {text} names a queue, not a message")
    return queue, short


def _tell(reply: Reply | None) -> int:
    if reply is None:
        return 0
    result, text = reply[0], reply[1] if len(reply) > 1 else ""
    print(f"{result} {text}".rstrip())
    return 0 if result == "ok" else 1


def _wants_help(given: Mapping[str, object]) -> bool:
    return "help" in given


def _usage(verb: str, text: str) -> int:
    print(f"usage: rq {verb} {text}")
    return 0
