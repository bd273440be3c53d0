"""Renders a chat template in a process of its own, which is stopped if it takes too much time or memory.

A template comes with the checkpoint. Jinja's sandbox keeps it from reaching anything outside, but not from looping
forever or filling the memory. This file is run as a script there, so it imports nothing of this package. Templates see
a fixed date, so a prompt never changes with the calendar.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

TODAY = datetime(2024, 7, 26)
"""The date that templates see: the default of Llama 3.1's own template."""
MAX_CHARACTERS = 1 << 20
MAX_BYTES = 1 << 30
CPU_SECONDS = 2
TIMEOUT = 60
"""Seconds until the process is stopped, on systems that cannot limit its computing time or if the machine is busy."""


def render_template(template: str, variables: Mapping[str, Any]) -> str:
    """Return what a template writes, given variables that are JSON values. Raise ValueError if it fails.

    >>> render_template("{{ messages[0].content }}!", {"messages": [{"content": "Hello"}]})
    'Hello!'
    """
    text, error = _outcome(template, json.dumps(variables))
    if error:
        raise ValueError(error)
    return text


@lru_cache(maxsize=16)
def _outcome(template: str, variables: str) -> tuple[str, str]:
    """The text and the error, one of which is empty: a template that fails is not run again either."""
    if getattr(sys, "frozen", False) or not sys.executable:
        return "", "it cannot run, because there is no Python interpreter"  # the program is not one itself
    job = json.dumps({"path": sys.path, "template": template, "variables": variables})
    try:
        done = subprocess.run(
            [sys.executable, "-I", __file__], input=job.encode(), capture_output=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"it takes more than {TIMEOUT} seconds"
    except (OSError, ValueError) as error:
        return "", f"no process can be started for it: {error}"
    if done.returncode:
        limits = f"{CPU_SECONDS} seconds of computing or {MAX_BYTES >> 30} GiB of memory"
        return "", f"it takes more than {limits}, or its process failed (exit code {done.returncode})"
    text, failure = json.loads(done.stdout)
    return text, failure


def _main() -> None:
    job = json.load(sys.stdin)
    sys.path[:] = job["path"]
    try:
        outcome = _render(job["template"], json.loads(job["variables"])), ""
    except Exception as error:
        outcome = "", f"{type(error).__name__}: {str(error)[:500]}"
    print(json.dumps(outcome))


def _render(template: str, variables: dict[str, Any]) -> str:
    """Render as transformers does."""
    from jinja2 import TemplateError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The block `generation`, which marks the assistant's text for training and changes nothing here."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def fail(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    environment.globals |= {"raise_exception": fail, "strftime_now": TODAY.strftime}
    _limit_resources()
    return "".join(_bounded(environment.from_string(template).generate(**variables)))


def _limit_resources() -> None:
    """Limit the time and memory of this process, on systems that can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(usage.ru_utime + usage.ru_stime) + CPU_SECONDS
    for what, limit in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, MAX_BYTES), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (value, hard))


def _bounded(pieces: Iterator[str]) -> Iterator[str]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > MAX_CHARACTERS:
            raise ValueError(f"it writes more than {MAX_CHARACTERS} characters")
        yield piece


if __name__ == "__main__":
    _main()
