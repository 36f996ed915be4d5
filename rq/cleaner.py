"""`python -m rq.cleaner`: RQ has written this name into scripts of users."""

import sys

from rq.builtin.cleaner import main

if __name__ == "__main__":
    sys.exit(main())
