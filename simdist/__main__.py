"""`python -m simdist` is the command `simdist`."""

import sys

from simdist.cli import main

if __name__ == "__main__":
    sys.exit(main())
