#!/usr/bin/env python3
"""The models of this skill bank that AutoML can search, and why not the others."""

import sys

from _sdk import scripts

sys.exit(scripts().list_automl_support(script=__file__))
