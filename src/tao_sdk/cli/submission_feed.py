"""Shows messages of a platform while it submits or delivers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tao_sdk.cli.output import Output

_LOGGERS = ("tao_sdk.brev",)


class _Feed(logging.Handler):
    def __init__(self, out: Output) -> None:
        super().__init__(logging.INFO)
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        say = self._out.warn if record.levelno >= logging.WARNING else self._out.say
        say(record.getMessage())


@contextmanager
def told_meanwhile(out: Output) -> Iterator[None]:
    """Pass on what platforms log about slow submissions, and about machines that cost money."""
    feed = _Feed(out)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(feed)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(feed)
            logger.setLevel(level)
