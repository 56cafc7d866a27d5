#!/usr/bin/env python3
"""The container image in which an action of a model runs."""

import sys

from _sdk import scripts

sys.exit(scripts().resolve_tao_image(script=__file__))
