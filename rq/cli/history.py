"""`rq spark history`: one round of the history, and what it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rq.cli import OK, place, state_counts, term
from rq.layout import Root
from rq.states import State

_PATIENCE = 300.0  # seconds to wait for a round that already runs

if TYPE_CHECKING:
    from rq.spark.rounds import Round


def history(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "spark history",
        "Read what has happened since the last round into the history on Spark, publish\n"
        "it for the web, and print how many messages are in which state, which is what\n"
        "`rq ls --count` counts.",
    )
    parser.add_argument(
        "queue", nargs="?", metavar="QUEUE", help="print this queue only"
    )
    parser.add_argument(
        "--skip-gaps", action="store_true", help="go on although events are missing"
    )
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="build the history anew from the journals",
    )
    term.json_option(parser)
    args = parser.parse_args(words)
    only = place.queue_dir(root, args.queue).name if args.queue else None
    done = run(root, skip_gaps=args.skip_gaps, rebuild=args.rebuild)
    from rq.spark.rounds import sentence

    counts = counted(done, only)
    if args.json:
        term.print_json({**summary(done), "counts": counts})
    else:
        state_counts.table(counts)
        print(sentence(done))
    return OK


def run(root: Root, **settings: bool) -> Round:
    """Run a round in a Spark of its own; print what it does."""
    from rq.spark import session

    session.demand_spark()
    from rq.spark.rounds import Settings, run_round

    place.note("starting Spark")
    spark = session.session("rq-history", quiet=True)
    try:
        return run_round(
            spark, root, Settings(patience=_PATIENCE, **settings), place.note
        )
    finally:
        session.close(spark)


def counted(done: Round, only: str | None = None) -> dict[str, dict[str, int]]:
    """Return the counts of all queues, or of one; what is prepared is in no journal."""
    names = [only] if only else sorted(done.counts)
    return {
        name: state_counts.whole(done.counts.get(name, {}), but=State.PREP)
        for name in names
    }


def summary(done: Round) -> dict[str, object]:
    """Return what a round did, for programs."""
    return {
        "as_of": done.as_of,
        "batches": done.batches,
        "events": done.events,
        "days": done.days,
        "silent": done.silent,
    }
