"""``python -m resispec_verify``."""

import sys

from resispec_verify.cli import main

if __name__ == "__main__":
    sys.exit(main())
