"""`python -m tao_sdk.cli` is `tao-sdk`."""

import sys

from tao_sdk.cli import main

sys.exit(main())
