"""Write the labelled solutions to the questions that the training of mini set aside, to calibrate it on.

    python set_aside.py OUT FILE...

At most 150 solutions per file, half of them incorrect if there are enough.
"""

from __future__ import annotations

import json
import sys

from surefoot.train.example import balanced_part, set_aside
from surefoot.train.readers import read_examples

SHARE, MOST = 0.15, 150
"""`validation` of the training runs, and the number of solutions per file."""


def main(out: str, *files: str) -> None:
    examples = [example for file in files for example in read_examples(file)]
    _, aside = set_aside(examples, SHARE)
    with open(out, "w", encoding="utf-8") as file:
        for example in balanced_part(aside, MOST):
            row = {"question": example.question, "steps": example.steps, "label": example.first_error}
            print(json.dumps(row, ensure_ascii=False), file=file)


if __name__ == "__main__":
    main(*sys.argv[1:])
