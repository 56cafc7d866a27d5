#!/usr/bin/env python3
"""Everything that a launch needs, checked before anything is made."""

import sys

from _sdk import scripts

check = scripts("tao_sdk.preflight.script").check_tao_launch_preflight
sys.exit(check(script=__file__))
