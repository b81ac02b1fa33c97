"""Requests to Relay: one session, the one error shape, and repetition of what may be repeated.

Repeated are GETs, and what the caller calls repeatable because it is stored once however often it comes (a submission
under its own id or key): after 429 or 503, or when there was no answer. Nothing else ever is. It ends after `retries`
repetitions, and at once when the server asks for a longer pause than `LONGEST_PAUSE_S`.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self, TypeVar, cast
from urllib.parse import quote, urlsplit

import msgspec
import requests
from requests.auth import AuthBase

from relay.client.errors import Misconfigured, RelayError, Unavailable, Unintelligible, error_of

Shape = TypeVar("Shape")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 20.0
_REPEATED = frozenset({429, 503})
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Response:
    """A good answer. Header names are looked up in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def read(self, shape: type[Shape]) -> Shape:
        """Its JSON as `shape`; `Unintelligible` when it is none. Fields that `shape` does not know are left out."""
        return self.part(self.body, shape)

    def part(self, text: bytes, shape: type[Shape]) -> Shape:
        """As `read`, of a part of its body."""
        try:
            return cast("Shape", _decoder(shape).decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as strange:
            raise Unintelligible(f"The answer is not what this client expects: {strange}.") from strange


def converted(said: Any, shape: type[Shape]) -> Shape:
    """What was read without a shape, as `shape`; `Unintelligible` when it is none."""
    try:
        return msgspec.convert(said, shape)
    except msgspec.ValidationError as strange:
        raise Unintelligible(f"The answer is not what this client expects: {strange}.") from strange


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    """Made once for each shape: it costs more than to use it."""
    if shape not in _decoders:
        _decoders[shape] = msgspec.json.Decoder(shape)
    return _decoders[shape]


class _Bearer(AuthBase):
    """The key. Said as `auth`, so that no ~/.netrc takes its place. It has no repr: it is a secret."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


class Http:
    """Calls one Relay with one key. Not for several threads at once: each needs its own."""

    def __init__(self, url: str, key: str, tenant: str | None, timeout: float, retries: int) -> None:
        """`Misconfigured` for what cannot be a URL, a key or a tenant."""
        self.url = _checked_url(url)
        if not _KEY.fullmatch(key):
            raise Misconfigured("The key has characters that no key has: look at RELAY_KEY.")
        if tenant is not None and not _TENANT.fullmatch(tenant):
            raise Misconfigured(f"No tenant can be called {tenant[:80]!r}.")
        self.timeout = timeout
        self.retries = retries
        self._session = requests.Session()
        self._session.auth = _Bearer(key)
        self._session.headers["User-Agent"] = "relay-client"
        self._session.headers["Accept"] = "application/json"
        if tenant is not None:
            self._session.headers["Relay-Tenant"] = tenant

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give its connections back."""
        self._session.close()

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Response:
        """Read something."""
        return self.call("GET", path, query=query, repeatable=True)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        etag: str | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Response:
        """Change something: once, and never repeated. `body` is anything that JSON can say; None: no body."""
        text = None if body is None else msgspec.json.encode(body)
        return self.call(method, path, query=query, body=text, headers={} if etag is None else {"If-Match": etag})

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> Response:
        """The answer, when it is good; otherwise a `RelayError`."""
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        named = {"Content-Type": "application/json", **(headers or {})} if body is not None else dict(headers or {})
        for repetition in range(self.retries + 1):
            try:
                return self._once(method, path, given, body, named)
            except RelayError as error:
                pause = _pause(error, repetition) if repeatable and repetition < self.retries else None
                if pause is None:
                    raise
                time.sleep(pause)
        raise AssertionError("the last repetition returns or raises")

    def _once(
        self, method: str, path: str, query: Mapping[str, Any], body: bytes | None, headers: Mapping[str, str]
    ) -> Response:
        try:
            answer = self._session.request(
                method, self.url + path, params=query, data=body, headers=headers, timeout=self.timeout,
                allow_redirects=False,
            )  # fmt: skip
        except requests.exceptions.SSLError as error:
            raise RelayError(f"{self.url} is not trusted: {_reason(error)}.", code="tls") from error
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            raise Unavailable(f"Cannot reach {self.url}: {_reason(error)}.", code="unreachable") from error
        except (requests.RequestException, UnicodeError) as error:
            raise RelayError(f"The request to {self.url} cannot be made: {type(error).__name__}.") from error
        if 300 <= answer.status_code < 400:
            where = _origin(answer.headers.get("Location", "")) or "elsewhere"
            raise Unintelligible(f"{self.url} leads to {where}: give that as the URL.", status=answer.status_code)
        if not answer.ok:
            raise self._refusal(answer)
        return Response(answer.status_code, answer.headers, answer.content)

    def _refusal(self, answer: requests.Response) -> RelayError:
        retry_after = _seconds(answer.headers.get("Retry-After"))
        try:
            content = msgspec.json.decode(answer.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            content = None
        if isinstance(content, dict) and "code" in content:
            return error_of(answer.status_code, content, retry_after)
        if answer.status_code in {429, 502, 503, 504}:  # of something that stands before Relay
            detail = f"{self.url} answered {answer.status_code}: try again later."
            return error_of(answer.status_code, {"code": "unavailable", "detail": detail}, retry_after)
        return Unintelligible(
            f"{self.url} does not answer as Relay does (HTTP {answer.status_code}): is the URL right?",
            status=answer.status_code,
        )


def path_of(text: str, *, slashes: bool = False) -> str:
    """One part of a path; with `slashes`, one that holds some, as the ids of operations do."""
    return quote(text, safe="/:~" if slashes else ":~")


def _text(value: Any) -> str:
    """A value as a URL says it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _pause(error: RelayError, repetition: int) -> float | None:
    """How long to wait before the next try, in seconds; None: there is none."""
    if error.status not in _REPEATED and not (isinstance(error, Unavailable) and error.status is None):
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= LONGEST_PAUSE_S else None
    return min(FIRST_PAUSE_S * 2.0**repetition, LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)  # noqa: S311 - spread


def _seconds(text: str | None) -> float | None:
    """What `Retry-After` says (RFC 9110 §10.2.3): seconds, or a date."""
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", text.strip()):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise Misconfigured(f"The URL of Relay must be like https://relay.example, not {url[:200]!r}.")
    if parts.username is not None or parts.password is not None:
        raise Misconfigured("The URL of Relay holds a name or a password: give the key as RELAY_KEY instead.")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _origin(location: str) -> str:
    try:
        parts = urlsplit(location)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def _reason(error: BaseException) -> str:
    """Why, in a few words: of the innermost fault that has some."""
    if isinstance(error, requests.Timeout):
        return "there was no answer in time"
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, BaseException) or one in seen:
            continue
        seen.append(one)
        waiting += [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]
    for one in reversed(seen):
        message = getattr(one, "verify_message", None) or (one.strerror if isinstance(one, OSError) else None)
        if message:
            return str(message)[:1].lower() + str(message)[1:]
    return "the connection broke"
