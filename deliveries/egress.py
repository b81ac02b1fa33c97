"""Which addresses may be called: the guard against requests to our own networks (SSRF).

Two checks. `check_url` reads a URL when an endpoint is saved and gives a clear reason; it resolves nothing. `allows`
judges one numeric address at the moment of connecting, and is the check that counts: a name can change its address.
Between the two, `deliveries.reachability` tells what the name means at the moment.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address

from django.conf import settings

from deliveries.addresses import NAT64, Address, Network, globally_routable, is_local, translated
from deliveries.url_grammar import Hosts, UrlRefused, Why, check_name, split_url

__all__ = ["DEFAULT_PORTS", "EgressPolicy", "Listeners", "UrlRefused", "Why", "split_url"]

DEFAULT_PORTS = frozenset({80, 443, 8080, 8443})
LOCALHOST = "localhost"
BOTH_LOCALHOSTS = (IPv4Address("127.0.0.1"), IPv6Address("::1"))

Listeners = Mapping[tuple[Address | None, int], str]
"""Address and port at which a part of Relay listens, and what it is. None stands for every address of this machine."""

_REMEMBERED = 8192
_REMEMBERED_NEAR_S = 10.0  # an address can come to this machine, or leave it


class EgressPolicy:
    """Who may be called: everything public on `ports` over https, and whatever `allow` names on any port.

    - `own` listeners are never called, nor what `deny` names: both beat `allow`.
    - `allow_http` permits plain http to public addresses too; inside `allow` it is always permitted.
    - `nat64`: an address of 64:ff9b::/96 is judged by the IPv4 address inside it; otherwise it is refused.
    - `hosts` may be saved although the rules for names refuse them. Their addresses are judged like all others.
    """

    __slots__ = ("_near", "_own_ports", "_verdicts", "allow", "allow_http", "deny", "hosts", "nat64", "own", "ports")

    def __init__(
        self,
        allow: Iterable[Network] = (),
        *,
        allow_http: bool = False,
        ports: Iterable[int] = DEFAULT_PORTS,
        deny: Iterable[Network] = (),
        hosts: Iterable[str] = (),
        nat64: bool = False,
        own: Listeners | None = None,
    ) -> None:
        self.allow = tuple(allow)
        self.allow_http = allow_http
        self.ports = frozenset(ports)
        self.deny = tuple(deny)
        self.hosts = Hosts(tuple(hosts))
        self.nat64 = nat64
        self.own = dict(own or {})
        self._own_ports = frozenset(port for _, port in self.own)
        self._verdicts: dict[tuple[str, int, bool], bool] = {}
        self._near: dict[tuple[str, int, bool], tuple[bool, float]] = {}

    @classmethod
    def from_settings(cls) -> EgressPolicy:
        """The policy of this installation: the variables RELAY_EGRESS_*, and where Relay's own parts listen."""
        return cls(
            settings.RELAY_EGRESS_ALLOW,
            allow_http=settings.RELAY_EGRESS_HTTP,
            ports=DEFAULT_PORTS | settings.RELAY_EGRESS_PORTS,
            deny=settings.RELAY_EGRESS_DENY,
            hosts=settings.RELAY_EGRESS_HOSTS,
            nat64=settings.RELAY_EGRESS_NAT64,
            own=settings.RELAY_OWN_LISTENERS,
        )

    def __repr__(self) -> str:
        return (
            f"EgressPolicy(allow=({_listed(self.allow)}), deny=({_listed(self.deny)}), allow_http={self.allow_http}, "
            f"ports={sorted(self.ports)}, hosts=({_listed(self.hosts.patterns)}), nat64={self.nat64}, "
            f"own_ports={sorted(self._own_ports)})"
        )

    # The check at the socket

    def allows(self, address: str, port: int, *, plain: bool = False) -> bool:
        """True when a connection to this numeric address may be made; `plain` for http without TLS.

        Text that is not an address is refused, never looked up.
        """
        question = (address, port, plain)
        verdict = self._verdicts.get(question)
        if verdict is None:
            verdict = self._judge_near(question) if port in self._own_ports else self._judge(question)
        return verdict

    def _judge(self, question: tuple[str, int, bool]) -> bool:
        if len(self._verdicts) >= _REMEMBERED:
            self._verdicts.clear()
        address, port, plain = question
        verdict = self._verdicts[question] = self.why_not(address, port, plain=plain) is None
        return verdict

    def _judge_near(self, question: tuple[str, int, bool]) -> bool:
        """The same for a port of ours, remembered for a while only: the answer depends on this machine's addresses."""
        now = time.monotonic()
        verdict, until = self._near.get(question, (False, 0.0))
        if until <= now:
            if len(self._near) >= _REMEMBERED:
                self._near.clear()
            address, port, plain = question
            verdict = self.why_not(address, port, plain=plain) is None
            self._near[question] = (verdict, now + _REMEMBERED_NEAR_S)
        return verdict

    def why_not(self, text: str, port: int, *, plain: bool = False) -> str | None:
        """Why this numeric address may not be called, as the rest of a sentence without its full stop; None: it may."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return "it is not a numeric address"
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            return "it belongs to one link"
        forms = self._forms(address)
        never = self._never(forms, port)
        if never is not None:
            return never
        if _any_inside(forms, self.allow):
            return None
        called = (translated(address) if self.nat64 else None) or address
        if not globally_routable(called):
            if address in NAT64 and not self.nat64:
                return "it leads through NAT64, which RELAY_EGRESS_NAT64=on permits"
            return "it is not a public address, and RELAY_EGRESS_ALLOW does not contain it"
        return self._not_in_public(port, plain=plain)

    def _forms(self, address: Address) -> tuple[Address, ...]:
        """The address, and before it the IPv4 address that would be called in its place."""
        if isinstance(address, IPv6Address):
            # The kernel calls a mapped one itself (RFC 4291, 2.5.5.2), a translator the one in a NAT64 one.
            inner = address.ipv4_mapped or (translated(address) if self.nat64 else None)
            if inner is not None:
                return (inner, address)
        return (address,)

    def _never(self, forms: tuple[Address, ...], port: int) -> str | None:
        """Why not even `allow` opens this."""
        if port in self._own_ports:
            for form in forms:
                ours = self.own.get((form, port))
                if ours is None and (None, port) in self.own and is_local(form):
                    ours = self.own[None, port]
                if ours is not None:
                    return f"{ours} listens there"
        if _any_inside(forms, self.deny):
            return "RELAY_EGRESS_DENY contains it"
        return None

    def _not_in_public(self, port: int, *, plain: bool) -> str | None:
        """Why not even a public address may be called like this."""
        if plain and not self.allow_http:
            if not self.allow:
                return "plain http is off, which RELAY_EGRESS_HTTP=on permits"
            inside = f"the networks of RELAY_EGRESS_ALLOW ({_listed(self.allow)})"
            return f"plain http is permitted only to {inside}, or everywhere with RELAY_EGRESS_HTTP=on"
        if port not in self.ports:
            allowed = ", ".join(map(str, sorted(self.ports)))
            return f"port {port} is not one of {allowed}, to which RELAY_EGRESS_PORTS can add"
        return None

    # The check at saving

    def check_url(self, url: str) -> None:
        """Raise `UrlRefused` when `url` can be seen, without a look-up, to be no place to deliver to."""
        scheme, host, port = split_url(url)
        plain = scheme == "http"
        try:
            address = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            self._check_name(host.rstrip(".").lower(), port, plain=plain)
            return
        forms = self._forms(address)
        never = self._never(forms, port)
        if never is not None:
            raise UrlRefused(f"This address may not be called: {never}.", Why.ADDRESS)
        if not _any_inside(forms, self.allow):
            raise UrlRefused(
                "An IP address is allowed only inside the networks of RELAY_EGRESS_ALLOW; use a host name.", Why.ADDRESS
            )

    def _check_name(self, name: str, port: int, *, plain: bool) -> None:
        if name == LOCALHOST:
            self._check_localhost(port, plain=plain)
            return
        listed = name in self.hosts
        check_name(name, listed=listed)
        if self._may_be_allowed(listed=listed):
            return
        never = self._not_in_public(port, plain=plain)
        if never is None:
            return
        if plain and not self.allow_http:
            raise UrlRefused(f"The URL must start with https://: {never}.", Why.HTTP)
        raise UrlRefused(f"The port of the URL may not be called: {never}.", Why.PORT)

    def _check_localhost(self, port: int, *, plain: bool) -> None:
        if any(self.allows(str(address), port, plain=plain) for address in BOTH_LOCALHOSTS):
            return
        never = self._never(BOTH_LOCALHOSTS, port)
        if never is not None:
            raise UrlRefused(f"localhost may not be called at port {port}: {never}.", Why.LOCALHOST)
        raise UrlRefused("localhost is allowed only when RELAY_EGRESS_ALLOW contains 127.0.0.0/8.", Why.LOCALHOST)

    def _may_be_allowed(self, *, listed: bool) -> bool:
        """Whether a name may turn out to lead into `allow`, on any port and over plain http.

        A name of the public DNS does not mean this machine: where `allow` holds nothing else, that is what localhost
        and literal addresses are for.
        """
        return bool(self.allow) and (listed or not all(network.is_loopback for network in self.allow))


def _any_inside(forms: tuple[Address, ...], networks: tuple[Network, ...]) -> bool:
    # Another version's network contains nothing.
    return any(form in network for form in forms for network in networks)


def _listed(many: Iterable[object]) -> str:
    return ", ".join(map(str, many))
