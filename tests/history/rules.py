"""What a history may be accused of: each rule once, by name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Rule(StrEnum):
    """A rule that was broken. The value is its sentence."""

    CHAIN = "each entry of a row begins with what the one before it left, and the last one is what stands there"
    DELETED = "nothing is deleted but pointers"
    RECORD = "takeovers, fenced writes, resolutions, acknowledgements and events are never changed"
    IDENTITY = "identity and digest never change"
    BELONGS = "task, run, operation and event belong together, and the operation sends what was accepted"
    BORN = "a run is born pending, a lease free, an operation prepared"
    REVISION = "each write raises the revision by one"
    TERMINAL = "terminal is terminal"
    MOVE = "only the moves of states.py are made"
    MOVER = "each move is made by its own statement"
    INTENT = "one intent has one operation"
    EPOCH = "an epoch rises by one at each acquire or takeover, and never falls"
    OWNER = "a new owner is a new epoch"
    STOLEN = "a lease that has not expired is not taken"
    EXPIRED = "a lease that has expired is neither renewed nor settled under"
    TAKEOVER = "who displaces an owner leaves a takeover of that term, and nobody else does"
    CLAIM = "a claim names the owner and epoch that its lease has at that moment"
    COUNT = "a claim is one more attempt; only one that is given back is one less"
    ATTEMPT = "an attempt is on record once, and learns only once what a lost worker saw"
    GAPLESS = "every attempt that was begun, and not given back, is on record"
    ATTEMPT_CLAIM = "an attempt on record was claimed with that number, epoch and owner"
    PROOF = "a settled outcome has its attempt on record, in the same commit, that proves it"
    STICKY = "unknown is left only by acceptance, an authoritative word or a person"
    FORGOTTEN = "that an attempt was ambiguous is forgotten only where the receiver says that none arrived"
    RESENT = "what may have arrived is not sent again by itself to who does not drop duplicates"
    AFTER_PROOF = "nothing is sent again once it is on record that a send was taken"
    FAILED = "a delivery fails only with proof that it was not taken, or by a person"
    RUN = "a run ends as its operations do"
    LOST = "every accepted event ends delivered, failed, cancelled or visibly unknown"
    UNCLAIMED_ARRIVAL = "what arrives was claimed before with that number and epoch"
    REPEATED_ARRIVAL = "each attempt arrives once"
    UNRECORDED_ARRIVAL = "what arrived has its attempt on record, or is still claimed"
    FALSE_NON_DELIVERY = "what is recorded as not sent did not arrive, and what is recorded as refused was refused"
    FALSE_RECEIPT = "what is recorded as accepted was answered 2xx by the receiver"


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach: which rule, of which row, seen where, and how."""

    rule: Rule
    table: str
    key: Any
    what: str
    seq: int | None = None

    def __str__(self) -> str:
        where = "" if self.seq is None else f" (entry {self.seq})"
        return f"{self.rule.name}: {self.rule.value}; but {self.table} {self.key}{where}: {self.what}"
