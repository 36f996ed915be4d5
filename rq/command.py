"""`python -m rq.command`: RQ has written this name into scripts of users."""

import sys

from rq.builtin.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
