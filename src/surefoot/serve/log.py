"""Logging as text or JSON lines.

One line per record, without text from requests. Only the stack trace of an internal error may quote some.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone

FIELDS = ("request_id", "status", "ms", "items", "tokens")


class JsonLines(logging.Formatter):
    """Formats each record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record as one line."""
        row = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        row |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            row["trace"] = self.formatException(record.exc_info)
        return json.dumps(row, ensure_ascii=False)


def set_up_logging(form: str, level: str) -> None:
    """Sends all log lines of the process to standard error, as `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if form == "json" else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Start and stop messages of the libraries are noise; their problems are not.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)
