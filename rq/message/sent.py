"""What a sender may say of a new message, beyond what each field may hold.

What was accepted elsewhere or before (relay, `new/`, copies, folders) is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from rq import names
from rq.errors import BadInput, BadMessage
from rq.message import fieldnames


def check(fields: Mapping[str, object]) -> None:
    """BadMessage when a field of a new message is called like one that steers it, or says
    what its sender cannot have meant."""
    fieldnames.check(fields)
    if fields.get("unique_key") == "":
        raise BadMessage(
            "unique_key is empty: say what equal messages have in common, or leave it out"
        )
    dest = fields.get("dest")
    if isinstance(dest, str):
        try:
            names.check_dest(dest)
        except BadInput as error:
            raise BadMessage(f"dest: {error}") from None
