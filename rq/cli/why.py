"""`rq why`: what a waiting message waits for."""

from __future__ import annotations

from rq.cli import ids, owner, term
from rq.layout import Root


def why(root: Root, words: list[str]) -> int:
    parser = term.parser("why", "Say why messages wait, and what to do.")
    parser.add_argument("ids", nargs="+", metavar="ID", help=term.ID)
    term.json_option(parser)
    args = parser.parse_args(words)
    with owner.Reader(root) as reader:
        messages = [reader.message(*ids.resolve(reader, i)) for i in args.ids]
    if args.json:
        term.print_json([message.get("_why") for message in messages])
        return 0
    for message in messages:
        waits, story = message.get("_why"), message["story"]
        todo = story["todo"]
        said = story["what"] if waits is None else waits["text"]
        print(f"{message['queue']}/{message['msg_id']}: {term.plain(said)}")
        if waits is not None and not todo.startswith("Nothing"):
            print(f"  {term.plain(todo)}")
    return 0
