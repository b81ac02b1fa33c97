"""From a claimed delivery to what is done about it now: sent, waited for, given back, or reported as not sent."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from uuid import UUID

from deliveries import ids
from deliveries.dispatch import tokens, wire
from deliveries.dispatch.claiming import Delivery
from deliveries.outcomes import NOT_SENT
from deliveries.sealing import SealBroken
from deliveries.signing import BadSecret
from deliveries.transport.base import Evidence, Outcome, Request

log = logging.getLogger("relay.dispatch")

SEALED_PAUSE_S = 60.0
"""How long an endpoint is left alone of which a secret does not open."""

REMEMBERED = 4096
_said_at: dict[UUID, float] = {}
"""When this process last said of an endpoint that its secret does not open: once a pause, not once a delivery."""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """Nothing of it is sent, and no attempt is spent: for `pause_s` seconds its endpoint cannot be sent to."""

    pause_s: float


class Awaited:
    """It waits in the dispatcher's hands for something that will be there in a moment."""


AWAITED = Awaited()


def prepared(delivery: Delivery, *, now: float, timeout_ms: int) -> Request | Awaited | GivenBack | Outcome:
    """The request to send; or why there is none. `now` is monotonic seconds.

    A secret that does not open is not the receiver's fault, and so no attempt of the delivery's.
    """
    try:
        return wire.request_of(delivery, now=now, timeout_ms=timeout_ms)
    except tokens.TokenAwaited:
        return AWAITED
    except tokens.TokenDelayed as delayed:
        return GivenBack(delayed.seconds)
    except tokens.TokenRefused as refused:
        return Outcome(delivery.key, NOT_SENT, None, (), b"", str(refused), Evidence())
    except (SealBroken, BadSecret) as unusable:
        _say(delivery.endpoint.endpoint_id, unusable, now)
        return GivenBack(SEALED_PAUSE_S)


def _say(endpoint_id: UUID, unusable: Exception, now: float) -> None:
    if endpoint_id in _said_at and now - _said_at[endpoint_id] < SEALED_PAUSE_S / 2:
        return
    if len(_said_at) >= REMEMBERED:
        _said_at.clear()
    _said_at[endpoint_id] = now
    name = ids.render(ids.ENDPOINT, endpoint_id)
    log.error("nothing is sent to %s for %d s: %s", name, SEALED_PAUSE_S, unusable)
