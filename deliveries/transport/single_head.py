"""The head of a response, read from a stream by our rules, and what it says of where the body ends.

http.client takes `HTTP/1.1 200` and FIN for a success, 103 for a final status, and 6 MB of header lines for a head.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from deliveries.transport.base import HEAD_LIMIT, Head, Headers, read_head

_INFORMATIONAL = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d[ \r\n]")
_LENGTH = re.compile(r"\d{1,15}\Z", re.ASCII)


def read_final_head(stream: BinaryIO) -> Head:
    """The final head, informational ones before it passed over; read no further than it is of use."""
    lines: list[bytes] = []
    size, begins = 0, True
    while size <= HEAD_LIMIT:
        line = stream.readline(HEAD_LIMIT + 1 - size)
        if not line:
            break
        size += len(line)
        lines.append(line)
        if begins:
            if not line.startswith(b"HTTP/1."):
                break
            informational, begins = bool(_INFORMATIONAL.match(line)), False
        elif line in (b"\r\n", b"\n"):
            if not informational:
                break
            begins = True
        elif (b":" not in line and line[:1] not in b" \t") or b"\0" in line:
            return Head(None, (), "A header line of the response was malformed.")
    if not lines:
        return Head(None, (), "The receiver closed the connection without an answer.")
    return read_head(lines)


def framed(head: Head) -> bytes:
    """A head for http.client that says how the body is framed, and nothing else."""
    lines = [f"HTTP/1.1 {head.status} ", "Connection: close", *_framing(head.headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _framing(headers: Headers) -> list[str]:
    """The header lines that say where the body ends; none when they say nothing or disagree: then the connection's end
    is the body's."""
    said: dict[str, set[str]] = {"transfer-encoding": set(), "content-length": set()}
    for name, value in headers:
        if name.lower() in said:
            said[name.lower()].add(value.lower())
    encodings, lengths = said["transfer-encoding"], said["content-length"]
    if encodings:
        return ["Transfer-Encoding: chunked"] if encodings == {"chunked"} else []
    return [f"Content-Length: {lengths.pop()}"] if len(lengths) == 1 and all(map(_LENGTH.match, lengths)) else []
