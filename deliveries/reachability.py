"""What a URL leads to at this moment: a word of advice when an endpoint is saved, never a refusal.

A name can mean another address a moment later, and a name server that is down now may answer tomorrow. What may be
called is decided at the socket.
"""

from __future__ import annotations

from collections.abc import Sequence

from deliveries.egress import LOCALHOST, EgressPolicy, UrlRefused
from deliveries.transport.base import Refused, target_of
from deliveries.transport.lookups import Lookups, shared

LOOK_UP_S = 2.0


def preview(
    url: str, *, policy: EgressPolicy | None = None, lookups: Lookups | None = None, seconds: float = LOOK_UP_S
) -> str | None:
    """One sentence about why a delivery to `url` would not be sent at this moment; None when none is known.

    Returns within `seconds` and a moment. It never raises: a URL that may not even be saved gets that reason.
    """
    policy = policy or EgressPolicy.from_settings()
    try:
        policy.check_url(url)
        target = target_of(url)
    except (UrlRefused, Refused) as refused:
        return str(refused)
    if target.numeric or target.host == LOCALHOST:
        return None  # judged already
    answer = (lookups or shared()).answer(target.host, seconds)
    if answer is None:
        return f"At this moment the host {target.host} cannot be looked up: its name servers gave no answer in time."
    if not answer.addresses:
        return f"At this moment the host {target.host} cannot be called. {answer.error}"
    for address in answer.addresses:
        why = policy.why_not(address, target.port, plain=target.plain)
        if why is not None:
            return f"At this moment the host {target.host} resolves to {_among(answer.addresses, address)}: {why}."
    return None


def _among(addresses: Sequence[str], bad: str) -> str:
    if len(addresses) == 1:
        return f"{bad}, which may not be called"
    return f"{len(addresses)} addresses, of which {bad} may not be called, and so none of them is"
