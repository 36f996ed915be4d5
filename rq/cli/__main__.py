"""`python -m rq.cli`."""

import sys

from rq.cli import main

sys.exit(main())
