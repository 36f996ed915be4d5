"""`python -m rq.webhook`: scripts of users may name it so, as bundled ones do."""

import sys

from rq.builtin.webhook.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
