"""Packing the runner and what it shall do into one small shell command."""
