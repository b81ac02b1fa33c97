"""What the receiver makes of bytes: which requests were complete, and what it answered in full."""

from __future__ import annotations

import re
import zlib


class Counter:
    """Counts complete requests; `sums` are CRC-32 of their bodies, `heads` of every head that was read."""

    def __init__(self) -> None:
        self.complete = 0
        self.bytes = 0
        self.body_bytes = 0
        self.heads: list[bytes] = []
        self.sums: list[int] = []
        self._head = bytearray()
        self._left = 0
        self._sum = 0

    @property
    def in_body(self) -> bool:
        return self._left > 0

    def feed(self, data: bytes) -> None:
        self.bytes += len(data)
        while data:
            if self._left:
                piece, data = data[: self._left], data[self._left :]
                self._body(piece)
                continue
            before = len(self._head)
            self._head += data
            at = self._head.find(b"\r\n\r\n", max(before - 3, 0))
            if at < 0:
                return
            head, data = bytes(self._head[: at + 4]), data[at + 4 - before :]
            self._head.clear()
            self.heads.append(head)
            self._left = _content_length(head)
            self._sum = 0
            if not self._left:
                self._whole()

    def _body(self, piece: bytes) -> None:
        self.body_bytes += len(piece)
        self._sum = zlib.crc32(piece, self._sum)
        self._left -= len(piece)
        if not self._left:
            self._whole()

    def _whole(self) -> None:
        self.complete += 1
        self.sums.append(self._sum)


_FINAL = re.compile(rb"(?:HTTP/1\.[01] 1\d\d[^\n]*\n(?:[^\r\n][^\n]*\n)*\r?\n)*HTTP/1\.[01] ([2-9]\d\d)\b")
_END_OF_HEAD = re.compile(rb"\n\r?\n")


def status_given(said: bytes) -> int | None:
    """The status of the final answer that these bytes begin with, None when its head is not complete."""
    found = _FINAL.match(said)
    return int(found[1]) if found and _END_OF_HEAD.search(said, found.end()) else None


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0
