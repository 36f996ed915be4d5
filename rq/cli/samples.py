"""`rq demo`: sample messages, and what becomes of them."""

from __future__ import annotations

import os

from rq.cli import OK, owner, place, term
from rq.config import bundled
from rq.errors import NoSuchQueue, RQError
from rq.layout import Root

DEMO = "demo"
_PATIENCE = 30.0  # seconds for all of them to end

_EXAMPLES = place.CHECKOUT / "examples"

# param1 of a sample, and what to expect of it.
_SAMPLES = (
    ("succeed", "reports its progress and succeeds"),
    ("fail", "fails, by design"),
    ("retry", "asks to be run again once, then succeeds"),
)


def demo(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "demo", "Send three sample messages and show what becomes of them."
    )
    parser.parse_args(words)
    send(root)
    _examples()
    return OK


def send(root: Root) -> None:
    """Send the samples, follow the first, say what became of each."""
    if DEMO not in place.queue_names(root):
        raise NoSuchQueue(f"there is no queue {DEMO}: link {bundled.BUNDLED / DEMO}")
    from rq.cli import output, wait
    from rq.cli.send import submitted

    sent = []
    for param, text in _SAMPLES:
        fields = {"dest": DEMO, "param1": param, "src": "rq demo"}
        msg_id, _ = submitted(root, DEMO, fields)
        print(f"sent {DEMO}/{msg_id}, which {text}")
        sent.append((DEMO, msg_id))
    print("\nthe log of the first, as its script writes it:", flush=True)
    with owner.Reader(root) as reader:
        output.follow(reader, *sent[0], 0)
        states = wait.until_ended(reader, sent, _PATIENCE)
        print()
        term.table(
            ("MESSAGE", "STATE", "TRY", "WHAT HAPPENED AND WHY"),
            [_sample_row(reader, *target, str(states[target])) for target in sent],
        )


def _examples() -> None:
    """Name the queues to read and copy that a checkout holds."""
    examples = sorted(run.parent.name for run in _EXAMPLES.glob("*/run"))
    if examples:
        readme = os.path.relpath(_EXAMPLES / "README.md")
        print(f"\nmore queues, to link into scandir/: {', '.join(examples)} ({readme})")


def _sample_row(
    reader: owner.Reader, queue: str, msg_id: str, state: str
) -> tuple[object, ...]:
    try:
        message = reader.message(queue, msg_id)
    except RQError as error:
        return msg_id, state, "-", str(error)
    story = message["story"]
    text = f"{story['what']} {story['why']}"
    return f"{queue}/{msg_id}", state, message.get("attempt", "-"), text
