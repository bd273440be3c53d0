"""The HTTP protocol of the service: uvicorn's, with limits on the size and the duration of a request's head.

uvicorn parses with httptools, which stores a head of any size and waits for its end without a limit, before anything of
ours sees the request. A head is the request line and the headers. Headers that follow a chunked body (trailers) count
as well.
"""

from __future__ import annotations

import json
import logging
from asyncio import Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from surefoot.serve.state import ServiceState

logger = logging.getLogger("surefoot.serve")

HEADER_OVERHEAD = 32
"""Bytes that a header costs besides its name and value, as RFC 9113 counts them: many short headers are not free."""
LINGER = 1.0
"""Seconds that a refused connection stays open for reading. Closing it at once could destroy the reply on its way."""


class HeadTooLargeError(Exception):
    """Stops the parser."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection. A request whose head is too large or too slow gets 431 or 408, and the connection is closed."""

    def __init__(self, *args: Any, service: ServiceState, **options: Any) -> None:
        super().__init__(*args, **options)
        self._service = service
        self._settings = service.settings
        self._refused = False
        self._parsed_bytes = 0
        """Size of the path and the headers of this request so far."""
        self._open_bytes = 0
        """Bytes that have arrived since a head or a part of a body ended. The parser may have stored all of them."""
        self._ended = False
        """Whether a head or a part of a body ended in the bytes that are being parsed."""
        self._timer: Any = None
        """Limits the time for the head, then the time for the body."""
        self._cycles: list[RequestResponseCycle] = []
        """Requests without a complete reply. There are several if the client does not wait for replies."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Starts the time for the first head."""
        super().connection_made(transport)
        self._start_timer(self._settings.header_timeout, self._on_late_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells all requests that the client has disconnected; uvicorn tells the last one."""
        self._stop_timer()
        self._disconnect()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parses what has arrived, unless the request is refused."""
        if self._refused:
            return
        if self._timer is None:  # the first bytes after a complete request
            self._start_timer(self._settings.header_timeout, self._on_late_head)
        self._ended = False
        super().data_received(data)
        self._open_bytes = 0 if self._ended else self._open_bytes + len(data)
        if self._open_bytes > self._settings.max_header_bytes and not self._refused:
            self._refuse_large_head()

    def on_message_begin(self) -> None:
        """A request begins, perhaps in the bytes that ended the previous one."""
        self._parsed_bytes = 0
        if self._timer is None:
            self._start_timer(self._settings.header_timeout, self._on_late_head)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        self._count(len(name) + len(value) + HEADER_OVERHEAD)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The body begins."""
        self._ended = True
        super().on_headers_complete()
        self._cycles = [each for each in (*self._cycles, self.cycle) if not each.response_complete]
        self._start_timer(self._settings.body_timeout, self._on_late_body)

    def on_chunk_header(self) -> None:
        """A part of a body of unknown length begins."""
        self._ended = True

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._ended = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._ended = True
        self._stop_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuses what the parser could not read, or a head that is too large."""
        if self._parsed_bytes > self._settings.max_header_bytes:
            self._refuse_large_head()
        else:
            self._refuse(400, "invalid_http", "This is not an HTTP request.")

    def _count(self, size: int) -> None:
        self._parsed_bytes += size
        if self._parsed_bytes > self._settings.max_header_bytes:
            raise HeadTooLargeError  # the parser stops, and uvicorn calls `send_400_response`

    def _refuse_large_head(self) -> None:
        message = f"The request line and the headers have more than {self._settings.max_header_bytes} bytes."
        self._refuse(431, "headers_too_large", message)

    def _on_late_head(self) -> None:
        self._timer = None
        if self.flow.read_paused:  # the head may have arrived: earlier requests are answered first
            self._start_timer(self._settings.header_timeout, self._on_late_head)
        elif self.scope is None and not self._open_bytes:  # nothing was sent: there is no request to reply to
            self.transport.close()
        else:
            self._refuse(408, "headers_timeout", "The headers did not arrive in time. Send them at once.")

    def _on_late_body(self) -> None:
        """Closes the connection if the reply does not depend on the body. Otherwise `read_body` replies."""
        self._timer = None
        if self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _refuse(self, code: int, kind: str, message: str) -> None:
        """Sends an error, unless a reply is in progress, and discards everything that still arrives."""
        self._refused = True
        self._stop_timer()
        in_progress = any(not cycle.response_complete for cycle in self._cycles)
        self._disconnect()
        logger.info("Refused a request: %d.", code, extra={"status": code})
        self._service.metrics.requests.labels("other", str(code)).inc()
        if in_progress or self.transport.is_closing():
            self.transport.close()
            return
        body = json.dumps({"error": {"type": kind, "message": message, "code": code}}).encode()
        self.transport.write(
            STATUS_LINE[code]
            + b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body
        )
        self._start_timer(LINGER, self.transport.close)

    def _disconnect(self) -> None:
        """Without this, uvicorn would write the replies of earlier requests to a closed connection."""
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _start_timer(self, seconds: float, then: Any) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
