#!/usr/bin/env python3
"""The models of this skill bank, and which of them AutoML can search."""

import sys

from _sdk import scripts

sys.exit(scripts().list_tao_models(script=__file__))
