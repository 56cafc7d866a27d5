#!/usr/bin/env python3
"""What a key of versions.yaml stands for, and nothing else on stdout."""

import sys

from _sdk import scripts

sys.exit(scripts().resolve_versions_key(script=__file__))
