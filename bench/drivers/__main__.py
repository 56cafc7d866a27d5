"""`python -I drivers MODULE FOLDER`: serve calls of one tool, one JSON line in, one out.

Run by the tool's own interpreter, which has nothing of this checkout; so these files import each
other by plain name and nothing else of `bench`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> None:
    # Jobs inherit standard output: what they print must not look like an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    tool = importlib.import_module(sys.argv[1]).open_in(sys.argv[2])
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        call, arguments = json.loads(line)
        print(json.dumps(getattr(tool, call)(**arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
