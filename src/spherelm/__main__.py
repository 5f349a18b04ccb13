"""`python -m spherelm` is `spherelm`."""

import sys

from spherelm.cli import main

sys.exit(main())
