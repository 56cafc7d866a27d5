"""Measurements beside other tools: `make bench`, or `python -m bench [case ...]`.

Writes `results.json`, `results.md` and one chart for each case to `build/bench`.
"""
