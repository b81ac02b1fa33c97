"""The rows of a history one after the other: chains, revisions, moves, terms and claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ledger.states import OPERATION_MOVES, OPERATION_TERMINAL, RUN_MOVES, RUN_TERMINAL, Move
from tests.history.journal import FOUND, Entry, History, Row
from tests.history.rules import Rule, Violation

IDENTITY: Mapping[str, tuple[str, ...]] = {
    "ledger_task": ("tenant_id", "event_id", "endpoint_id", "created_at"),
    "ledger_run": ("task_id", "reason", "created_at"),
    "ledger_operation": (
        "run_id", "step_id", "effect_version", "tool", "request_digest", "request_ref", "created_at",
    ),
    "deliveries_attempt": ("operation_key", "number", "epoch", "owner", "url"),
}  # fmt: skip
RECORDS = frozenset(
    {
        "ledger_takeover",
        "ledger_fenced_write",
        "ledger_resolution",
        "deliveries_acknowledgement",
        "deliveries_event",
    }
)
MOVES: Mapping[str, tuple[tuple[Move, ...], Collection[str]]] = {
    "ledger_run": (RUN_MOVES, RUN_TERMINAL),
    "ledger_operation": (OPERATION_MOVES, OPERATION_TERMINAL),
}
BORN: Mapping[str, Mapping[str, Any]] = {
    "ledger_run": {"status": "pending", "revision": 0},
    "ledger_lease": {"epoch": 0, "owner": None},
    "ledger_operation": {"status": "prepared", "revision": 0, "attempts": 0, "ambiguous": False},
}


BEGINS_A_TERM = frozenset(
    {
        "lease.acquire",
        "operation.claim",
        "unknown.expire_claims",
        "unknown.resolve",
        "unknown.converge",
        "run.finish_left_behind",
    }
)
"""The statements whose every write of a lease is a term of its own."""
JUDGED_BEFORE = timedelta(seconds=2)
"""How much later than it judged a statement may write, on a machine that is busy."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as it was journalled."""

    at: datetime
    number: int
    epoch: int | None
    owner: str


@dataclass(slots=True)
class Folded:
    """What a history comes to: the rows as they were left, what happened to each operation, and the breaches found."""

    last: dict[str, dict[Any, Row]] = field(default_factory=lambda: defaultdict(dict))
    operations: dict[Any, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    claims: dict[Any, list[Claim]] = field(default_factory=lambda: defaultdict(list))
    by_commit: dict[tuple[str, int], list[Entry]] = field(default_factory=lambda: defaultdict(list))
    endpoints: dict[Any, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    violations: list[Violation] = field(default_factory=list)
    said: dict[Any, int] = field(default_factory=dict)
    """When each word of a receiver came to be on record: the `seq` of its entry, by its key."""
    taken: dict[Any, int] = field(default_factory=dict)
    """When it first was on record that an operation was taken, by a late report or its receiver's word."""
    _by_operation: dict[str, dict[Any, list[Row]]] = field(default_factory=dict)

    def accuse(self, rule: Rule, entry: Entry, what: str) -> None:
        """Note a breach."""
        self.violations.append(Violation(rule, entry.table, entry.key[1], what, entry.seq))

    def of_operation(self, table: str, key: Any) -> list[Row]:
        """The rows of `table` that speak of an operation, as they were left."""
        if table not in self._by_operation:
            found: dict[Any, list[Row]] = defaultdict(list)
            for row in self.last[table].values():
                found[row["operation_key"]].append(row)
            self._by_operation[table] = found
        return self._by_operation[table].get(key, [])

    def beside(self, entry: Entry, table: str) -> list[Entry]:
        """What the transaction of `entry` did to `table`."""
        return self.by_commit[table, entry.txid]


def fold(history: History) -> Folded:
    """Walk the entries once, in the order of each row's own writes."""
    seen = Folded()
    entries = sorted(history.entries, key=lambda entry: entry.seq)
    for entry in entries:
        seen.by_commit[entry.table, entry.txid].append(entry)
    for entry in entries:
        if entry.op == "TRUNCATE":
            _forget(seen, entry.table)
            continue
        _chain(seen, entry)
        if entry.op == "DELETE":
            if entry.table != "ledger_dispatch":
                seen.accuse(Rule.DELETED, entry, "it is gone")
            seen.last[entry.table].pop(entry.key[1], None)
            continue
        seen.last[entry.table][entry.key[1]] = entry.row
        _row(seen, entry)
    _stands(seen, history)
    return seen


def _forget(seen: Folded, table: str) -> None:
    seen.last[table].clear()
    if table == "ledger_operation":
        seen.operations.clear()
        seen.claims.clear()
    if table == "deliveries_endpoint":
        seen.endpoints.clear()


def _chain(seen: Folded, entry: Entry) -> None:
    before = seen.last[entry.table].get(entry.key[1])
    if entry.op in {"INSERT", FOUND}:
        if before is not None:
            seen.accuse(Rule.CHAIN, entry, "it is born although it is there already")
    elif before is None:
        seen.accuse(Rule.CHAIN, entry, f"{entry.op} of a row whose birth is not on record")
    elif before != entry.old:
        seen.accuse(Rule.CHAIN, entry, f"it was left otherwise: {_difference(before, entry.old or {})}")


def _stands(seen: Folded, history: History) -> None:
    left = {(table, key): row for table, rows in seen.last.items() for key, row in rows.items()}
    for table, key in {*left, *history.standing}:
        there, noted = history.standing.get((table, key)), left.get((table, key))
        if there != noted:
            what = "it stands there, and the journal does not know of it" if noted is None else "it is not there"
            if there is not None and noted is not None:
                what = f"another row stands there than the journal ends with: {_difference(noted, there)}"
            seen.violations.append(Violation(Rule.CHAIN, table, key, what))


def _row(seen: Folded, entry: Entry) -> None:
    if entry.op == "INSERT":
        wrong = {
            name: entry.row.get(name)
            for name, right in BORN.get(entry.table, {}).items()
            if entry.row.get(name) != right
        }
        if wrong:
            seen.accuse(Rule.BORN, entry, f"it was born with {wrong}")
    elif entry.op == "UPDATE" and entry.old is not None:
        _changed(seen, entry, entry.old, entry.row)
    match entry.table:
        case "ledger_lease":
            _lease(seen, entry)
        case "ledger_operation":
            _operation(seen, entry)
        case "deliveries_endpoint":
            seen.endpoints[entry.key[1]].append(entry)
        case "deliveries_attempt" if entry.row["late"] and entry.row["classification"] == "accepted":
            seen.taken.setdefault(entry.row["operation_key"], entry.seq)
        case "deliveries_acknowledgement":
            _word(seen, entry)
        case "ledger_takeover" if entry.op == "INSERT":
            terms = [one for one in seen.beside(entry, "ledger_lease") if one.row["run_id"] == entry.row["run_id"]]
            if not any(_displaces(one) and one.row["epoch"] == entry.row["epoch"] for one in terms):
                seen.accuse(Rule.TAKEOVER, entry, f"no lease was taken over for epoch {entry.row['epoch']}")


def _word(seen: Folded, entry: Entry) -> None:
    word = entry.row
    seen.said.setdefault(entry.key[1], entry.seq)
    operation = seen.last["ledger_operation"].get(word["operation_key"], {})
    if word["said"] == "processed" and word["covers"] > 0 and word["run_id"] == operation.get("run_id"):
        seen.taken.setdefault(word["operation_key"], entry.seq)


def _changed(seen: Folded, entry: Entry, old: Row, new: Row) -> None:
    if entry.table in RECORDS:
        seen.accuse(Rule.RECORD, entry, _difference(old, new))
    changed = [name for name in IDENTITY.get(entry.table, ()) if old.get(name) != new.get(name)]
    if changed:
        seen.accuse(Rule.IDENTITY, entry, f"{', '.join(changed)} changed")
    if entry.table not in MOVES:
        return
    moves, terminal = MOVES[entry.table]
    if new["revision"] != old["revision"] + 1:
        seen.accuse(Rule.REVISION, entry, f"revision {old['revision']} became {new['revision']}")
    if old["status"] in terminal:
        seen.accuse(Rule.TERMINAL, entry, f"it was {old['status']} and was written again: {_difference(old, new)}")
        return
    movers = {move.statement for move in moves if (move.source, move.target) == (old["status"], new["status"])}
    if not movers:
        seen.accuse(Rule.MOVE, entry, f"{old['status']} became {new['status']}")
    elif entry.statement not in movers:
        seen.accuse(
            Rule.MOVER, entry, f"{entry.statement or 'SQL of no name'} moved {old['status']} to {new['status']}"
        )


def _displaces(entry: Entry) -> bool:
    return (
        entry.op == "UPDATE"
        and entry.old is not None
        and entry.old["owner"] is not None
        and entry.row["epoch"] != entry.old["epoch"]
    )


def _lease(seen: Folded, entry: Entry) -> None:
    if entry.op != "UPDATE" or entry.old is None:
        return
    old, new = entry.old, entry.row
    risen = new["epoch"] - old["epoch"]
    if risen not in {0, 1} or (risen == 0 and entry.statement in BEGINS_A_TERM):
        seen.accuse(Rule.EPOCH, entry, f"epoch {old['epoch']} became {new['epoch']}")
    if new["owner"] is not None and new["owner"] != old["owner"] and risen <= 0:
        seen.accuse(Rule.OWNER, entry, f"{new['owner']} holds epoch {new['epoch']}, which was {old['owner']}'s")
    if entry.statement in {"lease.renew", "operation.settle"}:
        # Both clocks are the statement's own: it judges, and a little later it writes.
        late = datetime.fromisoformat(new["updated_at"]) - datetime.fromisoformat(old["expires_at"])
        if late > JUDGED_BEFORE:
            seen.accuse(Rule.EXPIRED, entry, f"{entry.statement} wrote {late} after its end")
    if _displaces(entry):
        if datetime.fromisoformat(old["expires_at"]) > entry.at:
            seen.accuse(Rule.STOLEN, entry, f"{old['owner']} held it until {old['expires_at']}")
        written = [one.row for one in seen.beside(entry, "ledger_takeover") if one.row["run_id"] == new["run_id"]]
        if not any((one["epoch"], one["previous_owner"]) == (new["epoch"], old["owner"]) for one in written):
            seen.accuse(Rule.TAKEOVER, entry, f"no takeover of epoch {new['epoch']} from {old['owner']} is on record")


def _operation(seen: Folded, entry: Entry) -> None:
    key, new = entry.key[1], entry.row
    seen.operations[key].append(entry)
    old = entry.old if entry.op == "UPDATE" else None
    claimed = new["dispatch_owner"] is not None
    if claimed and (old is None or old["dispatch_owner"] != new["dispatch_owner"] or old["attempts"] < new["attempts"]):
        _claimed(seen, entry)
    if old is None:
        return
    more = new["attempts"] - old["attempts"]
    allowed = {1} if entry.statement == "operation.claim" else {0, -1} if entry.statement == "operation.settle" else {0}
    if more not in allowed:
        seen.accuse(Rule.COUNT, entry, f"{entry.statement} made {old['attempts']} attempts {new['attempts']}")
    if (
        old["ambiguous"]
        and not new["ambiguous"]
        and (entry.statement, new["status"]) != ("unknown.converge", "prepared")
    ):
        seen.accuse(Rule.FORGOTTEN, entry, f"{entry.statement} forgot it, and made it {new['status']}")


def _claimed(seen: Folded, entry: Entry) -> None:
    new = entry.row
    given_back = any(
        one.key == entry.key and one.seq > entry.seq and one.row["dispatch_owner"] is None
        for one in seen.beside(entry, "ledger_operation")
    )
    if seen.taken.get(entry.key[1], entry.seq) < entry.seq and not given_back:
        seen.accuse(Rule.AFTER_PROOF, entry, f"attempt {new['attempts']} was begun, and an earlier one was taken")
    # The statement's own: what is claimed and found to have been taken ends in another term, in the same transaction.
    terms = [
        one.row
        for one in seen.beside(entry, "ledger_lease")
        if (one.row["run_id"], one.statement) == (new["run_id"], entry.statement)
    ]
    lease = terms[-1] if terms else seen.last["ledger_lease"].get(new["run_id"])
    epoch = new.get("dispatch_epoch", None if lease is None else lease["epoch"])
    seen.claims[entry.key[1]].append(Claim(entry.at, new["attempts"], epoch, new["dispatch_owner"]))
    if entry.op == "UPDATE" and (lease is None or (lease["owner"], lease["epoch"]) != (new["dispatch_owner"], epoch)):
        held = "it has no lease" if lease is None else f"{lease['owner']} holds epoch {lease['epoch']}"
        seen.accuse(Rule.CLAIM, entry, f"claimed by {new['dispatch_owner']} in epoch {epoch}, while {held}")


def _difference(old: Row, new: Row) -> str:
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return ", ".join(f"{name} {old.get(name)!r} -> {new.get(name)!r}" for name in names) or "nothing changed"
