"""Machines that are reached through a shell: programs, framed answers, results fetched that way."""
