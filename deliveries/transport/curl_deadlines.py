"""When the next request in flight must end. Ours are the only deadlines; libcurl is told of none.

libcurl looks at its clock before it looks at the socket: wherever a process stood still, also inside of libcurl, it
would drop the answer that came meanwhile.
"""

from __future__ import annotations

import heapq

from deliveries.transport.curl_handle import Handle

_AT_ONCE = 256
_FORGOTTEN = 1024  # entries of ended requests that are kept at most, besides as many as are in flight


class Deadlines:
    """A heap of the deadlines of `flights`, a dict by key that the caller keeps. Times are monotonic seconds.

    An entry of a request that has ended stays until it comes to the top, or until there are too many of them.
    """

    def __init__(self, flights: dict[int, Handle]) -> None:
        self._flights = flights
        self._heap: list[tuple[float, int]] = []

    def add(self, handle: Handle) -> None:
        """The handle is in flight now."""
        heap, flights = self._heap, self._flights
        heapq.heappush(heap, (handle.deadline, handle.request.key))
        if len(heap) > 2 * len(flights) + _FORGOTTEN:
            heap[:] = [(other.deadline, key) for key, other in flights.items()]
            heapq.heapify(heap)

    def next(self) -> float:
        """The earliest one; infinity when nothing is in flight."""
        heap, flights = self._heap, self._flights
        while heap:
            deadline, key = heap[0]
            handle = flights.get(key)
            if handle is not None and handle.deadline == deadline:
                return deadline
            heapq.heappop(heap)
        return float("inf")

    def over(self, now: float) -> list[Handle]:
        """Take out what is past its deadline, a few at a time: while many end at once, others go on."""
        over: list[Handle] = []
        while len(over) < _AT_ONCE and self.next() <= now:
            over.append(self._flights[heapq.heappop(self._heap)[1]])
        return over

    def clear(self) -> None:
        self._heap.clear()
