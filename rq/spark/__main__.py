"""`rq-spark SCRIPT`: the interpreter of one-file jobs, for their first line."""

from __future__ import annotations

import sys
from pathlib import Path

from rq.errors import RQError


def main(argv: list[str] | None = None) -> int:
    """Run the script that is named; one sentence when it cannot be."""
    words = list(sys.argv[1:] if argv is None else argv)
    if len(words) != 1 or words[0] in ("-h", "--help"):
        sys.stderr.write(
            "usage: rq-spark SCRIPT, as the first line of a queue's script:\n"
            "  #!/usr/bin/env rq-spark\n"
            "without a queue: rq spark try SCRIPT --messages DIR\n"
        )
        return 2
    from rq.spark import jobs

    try:
        return jobs.main(Path(words[0]))
    except RQError as error:
        sys.stderr.write(f"rq-spark: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
