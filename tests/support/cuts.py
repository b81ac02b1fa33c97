"""Where a connection to PostgreSQL is to be cut, and what its messages say about when that moment has come.

Statements are known by the comment that carries their name: a Parse brings the text, a later Bind only the name under
which it was prepared, so those names are kept for each connection.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

_NAME = re.compile(rb"/\* relay: ([a-z0-9_.]+) \*/")
_CONTROL = re.compile(rb"\s*(BEGIN|START|COMMIT|END|ROLLBACK|SAVEPOINT|RELEASE|SET|DEALLOCATE)\b", re.IGNORECASE)
_COMMIT = re.compile(rb"\s*(COMMIT|END)\b", re.IGNORECASE)


class Where(Enum):
    """Where a connection is cut.

    A named statement outside of a transaction is its own transaction: for it, "commit" is the statement itself.
    """

    HALF_MESSAGE = "half_message"  # half of the statement's message reached the server
    BEFORE_ANSWER = "before_answer"  # the server has run the statement; the client does not hear of it
    BEFORE_COMMIT = "before_commit"  # the COMMIT never reaches the server
    AFTER_COMMIT = "after_commit"  # the server has committed; the client does not hear of it


@dataclass(slots=True)
class Fault:
    """One planned cut. `statement`: only where that statement is run (for a commit: in the same transaction).

    It happens at the `nth` place that fits, once; or, with a `probability`, at each place by the dice of `seed`, at
    most `times` times. `application`: only on connections with that application_name. `fired` counts, `seen` counts the
    places that fitted.
    """

    where: Where
    statement: str | None = None
    nth: int = 1
    probability: float | None = None
    seed: int = 0
    times: int = 1
    application: str | None = None
    seen: int = 0
    fired: int = 0
    cut: list[str] = field(default_factory=list)
    """The statements of what was cut, with commas between, one entry each time."""
    dice: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def strikes(self) -> bool:
        """Whether it happens at this place, which fits."""
        if self.fired >= self.times:
            return False
        self.seen += 1
        if self.probability is None:
            return self.seen >= self.nth
        return self.dice.random() < self.probability


class Cut(Exception):
    """The connection ends here; `before` still goes where the message was going."""

    def __init__(self, before: bytes = b"") -> None:
        super().__init__()
        self.before = before


class Session:
    """One client's connection: what it has prepared, what its transaction did, and what is being held back from it."""

    def __init__(self, faults: list[Fault], count: Counter[str], application: str) -> None:
        self.faults = faults
        self.count = count
        self.application = application
        self.prepared: dict[bytes, bytes] = {}
        self.statements: list[str] = []  # of the transaction that is open
        self.idle = True  # no transaction is open, as far as the server has said
        self.opening = False  # a BEGIN is on its way
        self.holding: Fault | None = None
        self.held = b""

    def from_client(self, kind: bytes, body: bytes, message: bytes) -> bytes:
        """What of this message goes on to the server. `Cut`: nothing any more."""
        if kind == b"P":
            name, _, rest = body.partition(b"\0")
            self.prepared[name] = rest.partition(b"\0")[0]
            return message
        if kind == b"C" and body[:1] == b"S":
            self.prepared.pop(body[1:].rstrip(b"\0"), None)
            return message
        if kind == b"Q":
            text = body.rstrip(b"\0")
        elif kind == b"B":
            text = self.prepared.get(body.split(b"\0", 2)[1], b"")
        else:
            return message
        return self._run(text, message)

    def _run(self, text: bytes, message: bytes) -> bytes:
        found = _NAME.search(text)
        statement = found.group(1).decode() if found else None
        alone = self.idle and not self.opening
        if statement is not None:
            self.statements.append(statement)
        if _CONTROL.match(text) is None:
            for fault in self._faults(Where.HALF_MESSAGE, [statement]):
                self._cut(fault, message[: len(message) // 2])
            for fault in self._faults(Where.BEFORE_ANSWER, [statement]):
                self.holding = fault
        else:
            self.opening = self.opening or text.lstrip()[:5].upper() in (b"BEGIN", b"START")
        if _COMMIT.match(text) or (alone and statement is not None):
            for fault in self._faults(Where.BEFORE_COMMIT, self.statements):
                self._cut(fault)
            for fault in self._faults(Where.AFTER_COMMIT, self.statements):
                self.holding = fault
        return message

    def _faults(self, where: Where, statements: Sequence[str | None]) -> Iterator[Fault]:
        for fault in list(self.faults):
            fits = fault.where is where and fault.application in (None, self.application)
            if fits and (fault.statement is None or fault.statement in statements) and fault.strikes():
                fault.fired += 1
                fault.cut.append(",".join(self.statements))
                yield fault

    def _cut(self, fault: Fault, before: bytes = b"") -> None:
        self.count[fault.where.value] += 1
        raise Cut(before)

    def from_server(self, kind: bytes, body: bytes, message: bytes) -> bytes:
        """What of this message goes on to the client."""
        if self.holding is None:
            self._follow(kind, body)
            return message
        if kind == b"E" or (kind == b"C" and body.startswith(b"ROLLBACK")):
            # It was not done, so there is nothing to be silent about.
            self.holding.fired -= 1
            self.holding.cut.pop()
            self.holding, said, self.held = None, self.held + message, b""
            return said
        if kind == b"Z":
            self._cut(self.holding)
        self.held += message
        return b""

    def _follow(self, kind: bytes, body: bytes) -> None:
        if kind == b"Z":
            self.idle, self.opening = body == b"I", False
            if self.idle:
                self.statements = []
