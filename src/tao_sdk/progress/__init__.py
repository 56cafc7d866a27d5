"""How far a job is: one model, read from its log, TAO's status.json and the runner's own lines.

::

    reader = ProgressReader()
    for line in job.logs(follow=True):
        if reader.feed(line, at=time.time()):
            print(reader.progress.summary())
"""

from tao_sdk.progress.bar import render_bar
from tao_sdk.progress.model import Progress
from tao_sdk.progress.reader import ProgressReader
from tao_sdk.progress.transfers import TRANSFER_PREFIX

__all__ = ["TRANSFER_PREFIX", "Progress", "ProgressReader", "render_bar"]
