"""Log lines, for people or for machines.

The rule: one line a record, and no text of a request in it. Only the trace of what broke inside may quote one.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone

FIELDS = ("request_id", "status", "ms", "items", "tokens")


class JsonLines(logging.Formatter):
    """Each record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
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
    """All log lines of the process go to standard error, as `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if form == "json" else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # What the server itself says of every start and stop is of no interest; what goes wrong is.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)
