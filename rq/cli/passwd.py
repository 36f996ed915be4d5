"""`rq passwd`: the line of a user for basic_auth, with the hash of a password."""

from __future__ import annotations

import getpass
import json
import sys

from rq import passwords
from rq.cli import OK, term
from rq.errors import BadInput
from rq.layout import Root

_SHORTEST = 8


def passwd(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "passwd",
        "Print the hash of a password, for users of basic_auth in config/config.json; "
        "the password is read from the terminal, or from standard input.",
    )
    parser.add_argument("user", nargs="?", default="admin", help="(admin)")
    args = parser.parse_args(words)
    if ":" in args.user or not args.user.isprintable():
        raise BadInput("a user's name holds no colon and nothing that cannot be shown")
    hashed = passwords.make(read_password())
    setting = {"basic_auth": {"realm": "RQ", "users": {args.user: hashed}}}
    print(json.dumps(setting, indent=1))
    return OK


def read_password() -> str:
    """Return a password from the terminal, asked for twice, or from standard input."""
    if sys.stdin.isatty():
        text = getpass.getpass("password: ")
        if text != getpass.getpass("again: "):
            raise BadInput("these were two different passwords")
    else:
        text = sys.stdin.readline().rstrip("\n")
    if len(text) < _SHORTEST:
        raise BadInput(f"a password has at least {_SHORTEST} characters")
    return text
