"""A program that sends to the URL of its first argument until its input ends, and prints what became of it.

One line per request: key, when it was submitted (monotonic seconds), verdict.
"""

from __future__ import annotations

import select
import sys
import time

from deliveries.transport.curl import CurlTransport
from tests.transports import BODY, LOOPBACK, request

TIMEOUT_MS = 250
AT_ONCE = 16


def main(url: str) -> None:
    transport = CurlTransport(LOOPBACK)
    submitted: dict[int, float] = {}
    following = 0
    ending = False
    while not ending or transport.in_flight:
        while not ending and transport.in_flight < AT_ONCE:
            submitted[following] = time.monotonic()
            headers = (("webhook-id", str(following)),)
            transport.submit(request(following, url, BODY, headers=headers, timeout_ms=TIMEOUT_MS))
            following += 1
        for outcome in transport.poll(1.0, wake=None if ending else sys.stdin.fileno()):
            print(outcome.key, submitted[outcome.key], outcome.verdict)
        ending = ending or bool(select.select([sys.stdin], [], [], 0)[0])
    transport.close()


if __name__ == "__main__":
    main(sys.argv[1])
