"""`rq token`: secrets with which programs may ask the web."""

from __future__ import annotations

import argparse
import time
from typing import Any

from rq import moments
from rq.access import tokens
from rq.access.roles import EVERY_QUEUE, Role
from rq.access.tokens import Token
from rq.cli import OK, audited, place, term
from rq.errors import BadInput
from rq.layout import Root


def token(root: Root, words: list[str]) -> int:
    args = _parser().parse_args(words)
    place.root_config(root)  # a root that was never set up is told how
    if args.what == "ls":
        return _ls(root, as_json=args.json)
    if args.what == "revoke":
        return _revoke(root, args.name)
    return _create(root, args)


def _parser() -> argparse.ArgumentParser:
    made = term.parser("token", "Secrets with which programs may ask the web.")
    kinds = made.add_subparsers(dest="what", required=True, metavar="WHAT")
    create = kinds.add_parser(
        "create", help="make one; its secret is printed once, on standard output"
    )
    create.add_argument("name", metavar="NAME", help="what it is for, say ci")
    create.add_argument(
        "--role",
        choices=[*Role],
        default=Role.PRODUCER,
        help="what it may do (%(default)s); each may what those before it may",
    )
    create.add_argument(
        "--queue",
        action="append",
        metavar="PATTERN",
        help="queues it may ask of, say 'mail-*'; may be said again (every queue)",
    )
    end = create.add_mutually_exclusive_group()
    end.add_argument(
        "--for", dest="lasting", metavar="TIME", help="how long it is valid, say 30d"
    )
    end.add_argument("--until", metavar="TIME", help="until when, say 2027-01-31")
    listing = kinds.add_parser("ls", help="list them, without the secrets")
    term.json_option(listing)
    revoke = kinds.add_parser("revoke", help="end one at once")
    revoke.add_argument("name", metavar="NAME")
    return made


def _create(root: Root, args: argparse.Namespace) -> int:
    now = time.time()
    secret = tokens.new_secret()
    made = Token(
        name=args.name,
        sha256=tokens.digest_of(secret),
        role=Role(args.role),
        queues=tuple(args.queue or EVERY_QUEUE),
        created=now,
        created_by=audited.user(),
        end=_end(args, now),
    )
    tokens.create(root, made)
    audited.note(root, f"token create {made.name} ({made.role})")
    until = "until it is revoked" if made.end is None else f"until {_when(made.end)}"
    place.note(
        f"{made.name} is {made.role} for {', '.join(made.queues)} {until}. This secret "
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
    audited.note(root, f"token revoke {name}")
    print(f"revoked {name}")
    return OK


def _ls(root: Root, *, as_json: bool) -> int:
    found = tokens.read(root)
    now = time.time()
    if as_json:
        term.print_json([_shown(one, now) for one in found])
    elif found:
        term.table(
            ("TOKEN", "ROLE", "QUEUES", "ENDS", "CREATED", "BY"),
            [
                (
                    one.name,
                    one.role,
                    ", ".join(one.queues),
                    _ends(one, now),
                    _when(one.created),
                    one.created_by,
                )
                for one in found
            ],
        )
    else:
        place.note("there are no tokens: `rq token create NAME` makes one")
    return OK


def _ends(one: Token, now: float) -> str:
    if one.end is None:
        return "never"
    return f"ended {_when(one.end)}" if one.ended(now) else _when(one.end)


def _shown(one: Token, now: float) -> dict[str, Any]:
    return {
        "name": one.name,
        "role": one.role,
        "queues": list(one.queues),
        "created": one.created,
        "created_by": one.created_by,
        "end": one.end,
        "ended": one.ended(now),
    }


def _when(epoch: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(epoch))
