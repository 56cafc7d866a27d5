#!/usr/bin/env python3
"""Everything that this skill bank can do."""

import sys

from _sdk import scripts

sys.exit(scripts().list_tao_capabilities(script=__file__))
