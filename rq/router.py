"""`python -m rq.router`: scripts of users may name it so, as bundled ones do."""

import sys

from rq.builtin.router.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
