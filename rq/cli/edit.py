"""`rq edit`: a message that has ended is sent again, with other fields."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from rq.cli import OK, change, ids, owner, place, term
from rq.errors import BadInput
from rq.layout import Root
from rq.message.actions import ACTIONS, Word
from rq.message.table import PARAMS, names
from rq.words.nesting import Json, from_json
from rq.words.states import version_of

# What an editor is given: what `rq send` has options for, and may be changed.
_EDITABLE = names(lambda row: bool(row.option and not row.fixed) or row.name in PARAMS)


def edit(root: Root, words: list[str]) -> int:
    """Send a message again that has ended, after an edit."""
    action = ACTIONS[Word.EDIT]
    parser = term.parser(
        action.word,
        f"{action.about} {action.explains} Without --paramN, $EDITOR opens its fields "
        "as JSON.",
    )
    parser.add_argument("id", metavar="ID", help=term.ID)
    for name in PARAMS:
        parser.add_argument(f"--{name}", metavar="VALUE", help="in place of what it is")
    args = parser.parse_args(words)
    place.demand_running(root)
    with owner.Reader(root) as reader:
        queue, msg_id = ids.resolve(reader, args.id)
    given = {name: getattr(args, name) for name in PARAMS}
    changes: Mapping[str, Json] = {k: v for k, v in given.items() if v is not None}
    request = change.request(msg_id)
    if not changes:
        reply = owner.demand(root, queue, "get_message", {"msg_id": msg_id})
        changes = _edited(cast(Mapping[str, Json], reply))
        # In an editor much time may pass.
        request["if_version"] = [version_of(cast(Mapping[str, object], reply))]
    if not changes:
        print("nothing was changed, and nothing is sent")
        return OK
    request["changes"] = changes
    url = str(owner.demand(root, queue, action.command, request))
    print(f"{queue}/{msg_id} {action.done.format(new=url.rpartition('/')[2])}")
    return OK


def _edited(message: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the fields that a person has changed in an editor; None: it is gone."""
    before = {name: message[name] for name in _EDITABLE if name in message}
    after = _in_editor(before)
    changes = {
        name: value for name, value in after.items() if value != before.get(name)
    }
    return {**changes, **{name: None for name in before if name not in after}}


def _in_editor(fields: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return what a person makes of some fields."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="rq-edit-") as directory:
        path = Path(directory) / "message.json"
        path.write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n")
        status = _run(editor, path)
        if status:
            raise BadInput(f"{editor} ended with {status}: nothing is sent")
        edited = from_json(_read(path), "what was edited")
    if not isinstance(edited, dict):
        raise BadInput("what was edited is not a JSON object: nothing is sent")
    return edited


def _run(editor: str, path: Path) -> int:
    """Return the exit status of an editor; BadInput when it cannot be started."""
    try:
        return subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadInput(
            f"{editor!r:.80} cannot be started ({why}): set EDITOR to an editor, or say "
            "--param1 VALUE; nothing is sent"
        ) from None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"what was edited cannot be read: {error}") from None
