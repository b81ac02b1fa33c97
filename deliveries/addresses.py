"""Numeric addresses: which are of the public internet, which IPv4 address one embeds, which are this machine's.

The lists are explicit. `ipaddress.is_global` is not used: it passes multicast, `::127.0.0.1`, `fec0::1`,
192.0.0.192 and 168.63.129.16, depending on the Python version.
"""

from __future__ import annotations

import errno
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import psutil

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

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
NAT64 = IPv6Network("64:ff9b::/96")
"""The well-known prefix of RFC 6052. The last 32 bits are the IPv4 address that a translator would call."""

_NOBODYS: dict[int, Address] = {
    4: IPv4Address("192.0.2.1"),
    6: IPv6Address("2001:db8::1"),
}  # for documentation: no machine has them


def globally_routable(address: Address) -> bool:
    """True for a unicast address of the public internet that no special-purpose list names."""
    if isinstance(address, IPv6Address):
        if address.scope_id is not None or address not in _UNICAST_6:
            return False
        return not any(address in network for network in _REFUSED_6)
    return not any(address in network for network in _REFUSED_4)


def translated(address: Address) -> IPv4Address | None:
    """The IPv4 address inside a NAT64 one (RFC 6052); None for every other address."""
    if isinstance(address, IPv6Address) and address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def is_local(address: Address) -> bool:
    """True when the kernel would lead a connection to `address` back to this machine.

    A local address is one that a socket can be bound to. Where the kernel lets sockets be bound to any address
    (net.ipv4.ip_nonlocal_bind) it is one that an interface has. In doubt the answer is True.
    Limit: an address that only a router or a load balancer leads back here is not known as ours.
    """
    if address.is_loopback or address.is_unspecified:
        return True
    if not _bindable(address):
        return False
    return not _bindable(_NOBODYS[address.version]) or str(address) in _addresses_of_interfaces()


def _bindable(address: Address) -> bool:
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


def _addresses_of_interfaces() -> set[str]:
    found = psutil.net_if_addrs().values()
    return {one.address.partition("%")[0] for interface in found for one in interface}
