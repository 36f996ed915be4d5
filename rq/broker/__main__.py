"""`python -m rq.broker`: the broker's process, which the supervisor starts and minds."""

import sys

from rq.broker import process

if __name__ == "__main__":
    alone = "--dir" in sys.argv
    sys.exit(process.alone() if alone else process.main())
