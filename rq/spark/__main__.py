"""`rq-spark SCRIPT`: the interpreter of one-file jobs, for their first line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rq.errors import RQError

_USAGE = """usage: rq-spark SCRIPT, as the first line of a queue's script:
  #!/usr/bin/env rq-spark
without a queue: rq spark try SCRIPT --messages DIR
"""


def main(argv: list[str] | None = None) -> int:
    """Run the script that is named; one sentence when it cannot be."""
    words = list(sys.argv[1:] if argv is None else argv)
    if len(words) != 1 or words[0] in ("-h", "--help"):
        sys.stderr.write(_USAGE)
        return 2
    try:
        from rq.spark import jobs, warm

        main_of = warm.main if warm.is_wanted(os.environ) else jobs.main
        return main_of(Path(words[0]))
    except RQError as error:
        return _refused(str(error))


def _refused(text: str) -> int:
    """Say it in the log, and to the queue if one has started this."""
    sys.stderr.write(f"rq-spark: {text}\n")
    if "RQ_MSG_DIR" in os.environ:
        line = f"err {' '.join(text.split())}\n"
        os.write(int(os.environ.get("RQ_WRITE", "3")), line.encode())
    return 2


if __name__ == "__main__":
    sys.exit(main())
