"""`python -m rq.supervisor`: run the supervisor of one root until it is told to stop."""

import sys

from rq.supervisor import main

sys.exit(main())
