"""Which addresses may be called: the guard against requests to our own networks (SSRF).

Two checks. `check_url` reads a URL when an endpoint is saved and gives a clear reason; it resolves nothing. `allows`
judges one numeric address at the moment of connecting, and is the check that counts: a name can change its address.

The lists are explicit. `ipaddress.is_global` is not used: it passes multicast, `::127.0.0.1`, `fec0::1`,
192.0.0.192 and 168.63.129.16, depending on the Python version.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import idna
from django.conf import settings

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

DEFAULT_PORTS = frozenset({80, 443, 8080, 8443})
DEFAULT_PORT = {"http": 80, "https": 443}
LONGEST_URL = 2048

# IANA special-purpose registry, multicast, reserved; then public addresses that clouds answer metadata on.
_REFUSED_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",
    )
)  # fmt: skip
# Of IPv6 only 2000::/3 is global unicast. That leaves out ::/8 with every embedded IPv4 form (mapped, compatible,
# translated, NAT64), ULA, link- and site-local, discard-only, SRv6 and multicast. Inside it these are special:
# protocol assignments with Teredo and ORCHID, documentation, 6to4, AS112 and the old test range.
_UNICAST_6 = IPv6Network("2000::/3")
_REFUSED_6 = tuple(
    IPv6Network(text)
    for text in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3ffe::/16", "3fff::/20")
)
_INTERNAL = (
    ".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa", ".localdomain", ".onion", ".arpa",
    ".invalid", ".test", ".example",
)  # fmt: skip
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([/?#].*)?\Z")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?\Z")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)\Z")
_NUMERIC = re.compile(r"([0-9]+|0x[0-9a-f]*)\Z")
_LOCALHOST = "localhost"
_REMEMBERED = 8192


class UrlRefused(ValueError):
    """The URL may not be an endpoint's. `reason` is a sentence for the person who typed it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class EgressPolicy:
    """Who may be called: everything public on `ports` over https, and whatever `allow` names on any port.

    `allow_http` permits plain http to public addresses too; inside `allow` it is always permitted.
    """

    __slots__ = ("_verdicts", "allow", "allow_http", "ports")

    def __init__(
        self, allow: Iterable[Network] = (), *, allow_http: bool = False, ports: Iterable[int] = DEFAULT_PORTS
    ) -> None:
        self.allow = tuple(allow)
        self.allow_http = allow_http
        self.ports = frozenset(ports)
        self._verdicts: dict[tuple[str, int, bool], bool] = {}

    @classmethod
    def from_settings(cls) -> EgressPolicy:
        """The policy of this installation: `RELAY_EGRESS_ALLOW` (networks) and `RELAY_EGRESS_HTTP`."""
        return cls(allow=settings.RELAY_EGRESS_ALLOW, allow_http=settings.RELAY_EGRESS_HTTP)

    def __repr__(self) -> str:
        networks = ", ".join(map(str, self.allow))
        return f"EgressPolicy(allow=({networks}), allow_http={self.allow_http}, ports={sorted(self.ports)})"

    def allows(self, address: str, port: int, *, plain: bool = False) -> bool:
        """True when a connection to this numeric address may be made; `plain` for http without TLS.

        Text that is not an address is refused, never looked up.
        """
        question = (address, port, plain)
        verdict = self._verdicts.get(question)
        if verdict is None:
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            verdict = self._verdicts[question] = self._judge(address, port, plain=plain)
        return verdict

    def _judge(self, text: str, port: int, *, plain: bool) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        if self._inside(address):
            return True
        return globally_routable(address) and port in self.ports and (self.allow_http or not plain)

    def _inside(self, address: Address) -> bool:
        """True inside `allow`; an IPv4-mapped IPv6 address is the IPv4 address that the kernel would call."""
        if isinstance(address, IPv6Address):
            if address.scope_id is not None:
                return False
            address = address.ipv4_mapped or address
        return any(address in network for network in self.allow)  # another version's network contains nothing

    def check_url(self, url: str) -> None:
        """Raise `UrlRefused` when `url` can be seen, without a look-up, to be no place to deliver to."""
        scheme, host, port = split_url(url)
        try:
            address = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            self._check_name(host, scheme, port)
            return
        if not self._inside(address):
            raise UrlRefused("An IP address is allowed only inside RELAY_EGRESS_ALLOW; use a host name.")

    def _check_name(self, host: str, scheme: str, port: int) -> None:
        name = host.rstrip(".").lower()
        if name == _LOCALHOST:
            if not self._inside(IPv4Address("127.0.0.1")):
                raise UrlRefused("localhost is allowed only when RELAY_EGRESS_ALLOW contains 127.0.0.0/8.")
            return
        _check_host_name(name)
        # With a list of allowed networks only the address, known when connecting, can tell.
        if self.allow:
            return
        if scheme == "http" and not self.allow_http:
            raise UrlRefused("The URL must start with https://.")
        if port not in self.ports:
            raise UrlRefused(f"Port {port} is not allowed; use one of {', '.join(map(str, sorted(self.ports)))}.")


def globally_routable(address: Address) -> bool:
    """True for a unicast address of the public internet that no special-purpose list names."""
    if isinstance(address, IPv6Address):
        if address.scope_id is not None or address not in _UNICAST_6:
            return False
        return not any(address in network for network in _REFUSED_6)
    return not any(address in network for network in _REFUSED_4)


def split_url(url: str) -> tuple[str, str, int]:
    """(scheme, host, port) by a grammar narrower than RFC 3986, so that no two parsers can disagree about the host."""
    if not 0 < len(url) <= LONGEST_URL:
        raise UrlRefused(f"The URL must have 1 to {LONGEST_URL} characters.")
    if re.search(r"[\x00-\x20\x7f\\]", url):
        raise UrlRefused("The URL may not contain spaces, control characters or backslashes.")
    if not url.isascii():
        raise UrlRefused("Write the host in punycode and percent-encode the rest of the URL.")
    found = _URL.match(url)
    if found is None:
        raise UrlRefused("The URL must look like https://host/path.")
    scheme, authority, rest = found[1].lower(), found[2], found[3] or ""
    if scheme not in DEFAULT_PORT:
        raise UrlRefused("The URL must start with https://.")
    if "@" in authority:
        raise UrlRefused("The URL may not contain a user name or password.")
    if "#" in rest:
        raise UrlRefused("The URL may not contain a fragment (#).")
    parts = _AUTHORITY.match(authority)
    if parts is None:
        raise UrlRefused("The host or the port of the URL is not valid.")
    host, port = parts[1], int(parts[2]) if parts[2] else DEFAULT_PORT[scheme]
    if not 0 < port < 65536:
        raise UrlRefused("The port of the URL is not valid.")
    if host.startswith("["):
        try:
            IPv6Address(host[1:-1])
        except ValueError:
            raise UrlRefused("The host in brackets is not an IPv6 address.") from None
    return scheme, host, port


def _check_host_name(name: str) -> None:
    labels = name.split(".")
    if len(name) > 253 or len(labels) < 2 or not all(_LABEL.match(label) for label in labels):
        raise UrlRefused("The host must be a full domain name.")
    if _NUMERIC.match(labels[-1]):
        raise UrlRefused("The host looks like an IP address in an unusual notation.")
    if ("." + name).endswith(_INTERNAL):
        raise UrlRefused("The host belongs to an internal domain.")
    if any(label.startswith("xn--") for label in labels):
        try:
            idna.decode(name)
        except idna.IDNAError:
            raise UrlRefused("The host is not a valid internationalised domain name.") from None
