"""Asking a receiver what became of an operation whose outcome is unknown, and settling it by the answer.

One question is a GET of the endpoint's `query_url`. What is asked is in the header `relay-question`, and what is signed
is that header's text, with a key that signs questions only. Beside that it brings what a delivery to the endpoint
brings: its client certificate always, the rest to the server of its `url` only. It is three steps: `prepare` reads and
locks, `Question.ask` is HTTP and nothing else, `conclude` records the answer and settles what it proves. No transaction
is open, and no row is locked, while HTTP is in flight; the session that prepared keeps an advisory lock, so that nobody
else asks about the same operation at the same time, and its connection is idle meanwhile.

Only a complete answer of the agreed form counts. Everything else (a 404, a 500, a silence, another operation's id) is
kept with its reason and means that the receiver has not said: it proves nothing.

Limit: `never_arrived` is true of the moment in which the receiver looked. It is not asked while a claim of the
operation is in flight, and it is not believed when another send was begun meanwhile; but a worker that was paused
before its last claim ran out, and wakes later, still sends what it was about to send. The receiver can fence that by
`relay-epoch`; Relay cannot.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import unquote_plus, urlencode

from deliveries import acknowledgements, authorization, ids, rotation, signing
from deliveries.acknowledgements import Said, Source
from deliveries.dispatch.limits import Limits
from deliveries.dispatch.tokens import TokenAwaited, TokenDelayed, TokenRefused
from deliveries.dispatch.wire import authorized, user_agent
from deliveries.egress import EgressPolicy
from deliveries.models import Endpoint
from deliveries.outcomes import ANSWERED
from deliveries.queries import ASKING, DELIVERIES
from deliveries.sealing import SealBroken
from deliveries.signing import BadSecret, Key
from deliveries.transport.base import PUBLIC, Headers, Refused, Tls, target_of
from deliveries.transport.single import Answer, fetch
from ledger import identity
from ledger.statements import in_transaction
from ledger.states import OperationStatus

SCHEDULE_S = (1, 10, 60, 300, 1_800, 7_200, 21_600)
"""When to ask: seconds from when it came to be unknown, then from each answer; the last one repeats."""
ASK_FOR_S = 7 * 86_400
"""How long an operation is asked about by itself, from when it came to be unknown."""
TIMEOUT_MS = 10_000
"""The longest that one question takes."""
BY_SCHEDULE = "query"
"""Who asked, when nobody did."""
STRETCH = 5_000
EACH = 20
"""Of how many unknown operations one look goes through, and how many of one endpoint it gives."""

_LONGEST_REMOTE_ID = 256
_SAYS = {
    Said.PROCESSED: "The receiver says that it processed it.",
    Said.REJECTED: "The receiver says that it rejected it, and will not take it.",
    Said.NEVER_ARRIVED: "The receiver says that it never arrived.",
    Said.UNKNOWN: "The receiver says that it does not know.",
}


class NotAsked(StrEnum):
    """Why no question was asked."""

    MISSING = "missing"
    """There is no such operation."""
    NOT_UNKNOWN = "not_unknown"
    """What became of it is known."""
    CLAIMED = "claimed"
    """It is being sent at this moment: what the receiver says now would be about the time before."""
    NO_QUERY_URL = "no_query_url"
    """Its endpoint has no `query_url`, or was deleted."""
    BEING_ASKED = "being_asked"
    """Somebody else is asking about it at this moment."""
    NO_TOKEN = "no_token"  # noqa: S105 - a reason
    """Its receiver wants an access token, and this process has none yet: it is being fetched."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an answer says. `detail` is one sentence; `status` is the HTTP status, when there was one."""

    said: Said
    detail: str
    remote_id: str | None = None
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """An operation about which its receiver may be asked now."""

    operation_key: int
    endpoint_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class _DueRow:
    walked: int
    walked_to: int | None
    operation_key: int | None
    endpoint_id: uuid.UUID | None


@dataclass(frozen=True, slots=True)
class _QuestionRow:
    operation_key: int
    run_id: uuid.UUID
    step_id: str
    effect_version: int
    status: str
    attempts: int
    event_id: uuid.UUID
    client_id: str | None
    tenant_id: str
    endpoint_id: uuid.UUID
    claimed: bool
    now: int


@dataclass(frozen=True, slots=True)
class _Done:
    done: bool


@dataclass(frozen=True, slots=True, repr=False)
class Question:
    """A question that is ready to be asked. `attempts`: how many sends had been begun when it was prepared."""

    operation_key: int
    operation_id: str
    run_id: uuid.UUID
    endpoint_id: uuid.UUID
    attempts: int
    url: str
    headers: Headers
    timeout_ms: int
    tls: Tls = PUBLIC
    refusal: str = ""
    """Why it cannot be asked, although it should be."""

    def ask(self) -> Reply:
        """Ask, and understand the answer. HTTP only: no database, so that any thread may do it."""
        if self.refusal:
            return Reply(Said.UNKNOWN, self.refusal)
        answer = fetch(
            "GET", self.url, self.headers, timeout_ms=self.timeout_ms, policy=EgressPolicy.from_settings(),
            tls=self.tls,
        )  # fmt: skip
        return understood(answer, self.operation_id)


def query(operation_key: int, *, actor: str = BY_SCHEDULE, timeout_ms: int = TIMEOUT_MS) -> Reply | NotAsked:
    """Ask the receiver about one operation, record what it says, and settle by it what it settles."""
    question = prepare(operation_key, timeout_ms=timeout_ms)
    if isinstance(question, NotAsked):
        return question
    try:
        reply = question.ask()
        conclude(question, reply, actor=actor)
    finally:
        let_go(question)
    return reply


def due(after: int, *, stretch: int = STRETCH, each: int = EACH) -> tuple[list[Due], int]:
    """What may be asked now among the unknown operations after key `after`, and where the next look begins (0: at the
    first). The cost is bounded by `stretch`, whatever the number of unknown operations."""
    rows = DELIVERIES["query.due"].rows(
        _DueRow,
        {"after": after, "stretch": stretch, "each": each, "schedule": list(SCHEDULE_S), "longest": ASK_FOR_S},
    )
    walked_to = rows[0].walked_to if rows[0].walked == stretch else None
    found = [
        Due(row.operation_key, row.endpoint_id)
        for row in rows
        if row.operation_key is not None and row.endpoint_id is not None
    ]
    return found, walked_to or 0


def prepare(operation_key: int, *, timeout_ms: int = TIMEOUT_MS) -> Question | NotAsked:
    """Make the question, and keep others from asking it until `let_go`. The lock goes with the session."""
    if not _session("query.hold", operation_key):
        return NotAsked.BEING_ASKED
    question: Question | NotAsked = NotAsked.MISSING
    try:
        question = _question(operation_key, timeout_ms)
    finally:
        if not isinstance(question, Question):
            _session("query.let_go", operation_key)
    return question


def conclude(question: Question, reply: Reply, *, actor: str) -> None:
    """Record a reply, and settle the operation where that proves something about it.

    That nothing arrived is recorded as about the sends that had been begun when the question was made.
    """
    in_transaction(
        lambda: acknowledgements.record(
            operation_key=question.operation_key,
            run_id=question.run_id,
            source=Source.QUERY,
            said=reply.said,
            remote_id=reply.remote_id,
            detail=reply.detail,
            actor=actor,
            status=reply.status,
            sends=question.attempts,
        )
    )
    acknowledgements.converge([question.operation_key])


def let_go(question: Question) -> None:
    """Others may ask again."""
    _session("query.let_go", question.operation_key)


def _session(statement: str, operation_key: int) -> bool:
    (answer,) = DELIVERIES[statement].rows(_Done, {"kind": ASKING, "operation_key": operation_key})
    return answer.done


def _question(operation_key: int, timeout_ms: int) -> Question | NotAsked:
    rows: Sequence[_QuestionRow] = DELIVERIES["query.question"].rows(_QuestionRow, {"operation_key": operation_key})
    if not rows:
        return NotAsked.MISSING
    row = rows[0]
    if row.status == OperationStatus.DISPATCHING or (row.status == OperationStatus.UNKNOWN and row.claimed):
        return NotAsked.CLAIMED
    if row.status != OperationStatus.UNKNOWN:
        return NotAsked.NOT_UNKNOWN
    endpoint = Endpoint.objects.get(endpoint_id=row.endpoint_id)
    if endpoint.query_url is None or endpoint.deleted_at is not None:
        return NotAsked.NO_QUERY_URL
    operation_id = identity.compose(row.tenant_id, row.run_id, row.step_id, row.effect_version)
    names = {
        "operation": operation_id,
        "run": str(row.run_id),
        "event": row.client_id or ids.render(ids.EVENT, row.event_id),
    }
    headers: Headers = ()
    tls, refusal = PUBLIC, ""
    try:
        keys = rotation.signers_of(endpoint, datetime.fromtimestamp(row.now, UTC))
        headers = (*_signed(names, keys, row.now), *_authorized(endpoint))
        tls = authorization.tls(endpoint)
    except (TokenAwaited, TokenDelayed):
        return NotAsked.NO_TOKEN  # nothing is recorded, so that it stays due: the next look may find the token
    except TokenRefused as refused:
        refusal = f"It was not asked. {refused}"
    except (SealBroken, BadSecret) as unusable:
        refusal = f"It was not asked, because nothing is sent unsigned or unauthenticated: {unusable}."
    return Question(
        operation_key=operation_key,
        operation_id=operation_id,
        run_id=row.run_id,
        endpoint_id=row.endpoint_id,
        attempts=row.attempts,
        url=url_of(endpoint.query_url, **names),
        headers=headers,
        timeout_ms=min(timeout_ms, Limits.from_settings().deadline_ms(endpoint.timeout_ms)),
        tls=tls,
        refusal=refusal,
    )


def _authorized(endpoint: Endpoint) -> Headers:
    """What a delivery to the endpoint authenticates with, when the question goes to the same scheme, host and port.

    Elsewhere nothing: it was given for the server of `url`, and another would learn it. Raises as `wire.authorized`.
    """
    try:
        if target_of(str(endpoint.query_url)) != target_of(endpoint.url):
            return ()
    except Refused:
        return ()  # nothing is sent to such a URL at all
    # The answer is JSON, whatever deliveries ask for.
    return tuple(pair for pair in authorized(endpoint) if pair[0].lower() != "accept")


def _signed(names: dict[str, str], keys: Sequence[Key], now: int) -> Headers:
    """The headers of a question about `names`. Its id is new each time: who drops duplicates by it still answers."""
    webhook_id, asked = ids.render(ids.QUESTION, ids.time_ordered()), json.dumps(names)
    asking = tuple(key.for_questions() for key in keys)
    signature = signing.sign_with_each(asking, webhook_id, now, asked.encode("ascii"))
    return (
        ("accept", "application/json"),
        ("user-agent", user_agent()),
        ("webhook-id", webhook_id),
        ("webhook-timestamp", str(now)),
        ("webhook-signature", signature),
        ("relay-question", asked),
    )


def url_of(query_url: str, **parameters: str) -> str:
    """`query_url` with the parameters added. Those that it has stay as they are spelt, but for any of the same name."""
    base, _, given = query_url.partition("?")
    others = [pair for pair in given.split("&") if pair and unquote_plus(pair.partition("=")[0]) not in parameters]
    return f"{base}?{'&'.join([*others, urlencode(parameters)])}"


def understood(answer: Answer, operation_id: str) -> Reply:
    """What an answer says about the operation; `UNKNOWN` with the reason when it is not of the agreed form."""
    if answer.verdict != ANSWERED or answer.status is None:
        return Reply(Said.UNKNOWN, answer.error, status=answer.status)
    if answer.status != 200:
        return _unclear(answer, f"The receiver answered {answer.status}.")
    if not answer.body_complete:
        return _unclear(answer, answer.error or "The answer is longer than 16 KiB.")
    try:
        said = json.loads(answer.body, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return _unclear(answer, "The answer is not JSON.")
    if not isinstance(said, dict) or said.get("outcome") not in Said.values:
        return _unclear(answer, f"The answer has no outcome that is one of {', '.join(Said.values)}.")
    if said.get("operation", operation_id) != operation_id:
        return _unclear(answer, "The answer is about another operation.")
    remote_id = said.get("remote_id")
    if remote_id is not None and not (isinstance(remote_id, str) and 0 < len(remote_id) <= _LONGEST_REMOTE_ID):
        return _unclear(answer, f"The answer's remote_id is not a text of 1 to {_LONGEST_REMOTE_ID} characters.")
    outcome = Said(said["outcome"])
    return Reply(outcome, _SAYS[outcome], remote_id, answer.status)


def _unclear(answer: Answer, reason: str) -> Reply:
    return Reply(Said.UNKNOWN, reason, status=answer.status)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) != len(pairs):
        raise ValueError("a name occurs twice")  # two readers would hear two things
    return named
