#!/usr/bin/env python3
"""The platforms of this skill bank, and what each asks for."""

import sys

from _sdk import scripts

sys.exit(scripts().list_tao_platforms(script=__file__))
