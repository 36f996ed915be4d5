"""`rq token` and `rq passwd`: with what programs and people sign in to the web."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import pwd
import sys
import time

from rq.access import tokens
from rq.access.audit import Audit, Deed
from rq.access.roles import EVERY_QUEUE, Role
from rq.access.tokens import Token
from rq.cli import OK, place, term
from rq.config import passwords
from rq.errors import BadInput
from rq.layout import Root
from rq.words import moments

_SHORTEST = 8


def token(root: Root, words: list[str]) -> int:
    args = _parser().parse_args(words)
    place.root_config(root)  # says how to set up a root that has none
    if args.what == "ls":
        return _ls(root, as_json=args.json)
    if args.what == "revoke":
        return _revoke(root, args.name)
    return _create(root, args)


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "token", "Tokens: secrets with which programs sign in to the web (HTTP)."
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    create = kinds.add_parser(
        "create", help="make one; its secret is printed once, on standard output"
    )
    create.add_argument("name", metavar="NAME", help="what it is for, say ci")
    create.add_argument(
        "--role",
        choices=[*Role],
        default=Role.PRODUCER,
        help="what it may do (%(default)s); each role may do what those before it may, "
        "except that a producer leases nothing, that viewers and workers send nothing, and "
        "that a sender sees and cancels nothing but what it has sent itself",
    )
    create.add_argument(
        "--queue",
        action="append",
        metavar="PATTERN",
        help="the queues it is for, say 'mail-*'; can be repeated (every queue)",
    )
    create.add_argument(
        "--sends",
        action="append",
        metavar="PATTERN",
        help="queues to which it may send as well, say for a worker whose script "
        "forwards; can be repeated",
    )
    create.add_argument(
        "--user",
        metavar="NAME",
        default="",
        help="whose it is: idempotency keys are the same with all tokens of a user, and "
        "where this user asks without one (those of tokens of this NAME alone)",
    )
    end = create.add_mutually_exclusive_group()
    end.add_argument(
        "--for",
        dest="lasting",
        metavar="TIME",
        help="how long it is valid, say 30d (until it is revoked)",
    )
    end.add_argument("--until", metavar="TIME", help="until when, say 2027-01-31")
    listing = kinds.add_parser("ls", help="list them, without the secrets")
    term.json_option(listing)
    revoke = kinds.add_parser("revoke", help="end one at once")
    revoke.add_argument("name", metavar="NAME")
    return parser


def _create(root: Root, args: argparse.Namespace) -> int:
    now = time.time()
    secret = tokens.new_secret()
    token = Token(
        name=args.name,
        sha256=tokens.digest_of(secret),
        role=Role(args.role),
        queues=tuple(args.queue or EVERY_QUEUE),
        sends=tuple(args.sends or ()),
        created=now,
        created_by=own_user(),
        end=_end(args, now),
        user=args.user,
    )
    tokens.create(root, token)
    note_in_audit(root, f"token create {token.name} ({token.role})")
    until = "until it is revoked" if token.end is None else f"until {_when(token.end)}"
    term.note(
        f"{token.name} is {token.role} for {_queues(token)} {until}. This secret "
        "is shown once; it goes into the header `Authorization: Bearer SECRET`:"
    )
    print(secret)
    return OK


def _end(args: argparse.Namespace, now: float) -> float | None:
    if args.lasting is not None:
        end = now + moments.duration(args.lasting)
    elif args.until is not None:
        end = moments.due(args.until, now)
    else:
        return None
    if end <= now:
        raise BadInput(f"a token that ends at {_when(end)} would never be valid")
    return end


def _revoke(root: Root, name: str) -> int:
    tokens.revoke(root, name)
    note_in_audit(root, f"token revoke {name}")
    print(f"revoked {name}")
    return OK


def _ls(root: Root, *, as_json: bool) -> int:
    listed = tokens.read(root)
    now = time.time()
    term.listed(
        ("TOKEN", "ROLE", "QUEUES", "ENDS", "CREATED", "BY"),
        [
            (
                entry.name,
                entry.role,
                _queues(entry),
                _ends(entry, now),
                _when(entry.created),
                entry.created_by,
            )
            for entry in listed
        ],
        "there are no tokens: `rq token create NAME` makes one",
        [_to_json(entry, now) for entry in listed] if as_json else None,
    )
    return OK


def _ends(token: Token, now: float) -> str:
    if token.end is None:
        return "never"
    return f"ended {_when(token.end)}" if token.ended(now) else _when(token.end)


def _queues(token: Token) -> str:
    sends = f" and sends to {', '.join(token.sends)}" if token.sends else ""
    return ", ".join(token.queues) + sends


def _to_json(token: Token, now: float) -> dict[str, object]:
    return {
        "name": token.name,
        "role": token.role,
        "queues": list(token.queues),
        "sends": list(token.sends),
        "user": token.principal.user,
        "created": token.created,
        "created_by": token.created_by,
        "end": token.end,
        "ended": token.ended(now),
    }


def _when(epoch: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(epoch))


# ---- lines in the audit log for what verbs do to who may do what


def own_user() -> str:
    """Return the name of the user who runs this verb."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def note_in_audit(root: Root, what: str) -> None:
    """Write what was done here into the audit log."""
    deed = Deed(who=own_user(), address="local", what=f"rq {what}", answer="ok")
    Audit(root).note(deed, time.time())


# ---- rq passwd


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
