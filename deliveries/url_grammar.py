"""What the URL of an endpoint may look like, whoever may be called: a grammar narrower than RFC 3986.

It is so narrow that no two parsers can disagree about the host.
"""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import IPv6Address

import idna

DEFAULT_PORT = {"http": 80, "https": 443}
LONGEST_URL = 2048
_LONGEST_NAME = 253  # RFC 1035, 3.1: 255 bytes on the wire

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([/?#].*)?\Z")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?\Z")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)\Z")
_NUMERIC = re.compile(r"([0-9]+|0x[0-9a-f]*)\Z")
_INTERNAL = (
    ".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa", ".localdomain", ".onion", ".arpa",
    ".invalid", ".test", ".example",
)  # fmt: skip


class Why(StrEnum):
    """The kinds of reasons for which a URL is refused when an endpoint is saved."""

    LENGTH = "length"
    CHARACTERS = "control, space or backslash"
    ASCII = "not ASCII"
    UNPARSABLE = "unparsable"
    SCHEME = "scheme"
    USERINFO = "userinfo"
    FRAGMENT = "fragment"
    NUMERIC_HOST = "numeric host"
    HOST_NAME = "host name"
    INTERNAL = "internal suffix"
    IDNA = "IDNA"
    LOCALHOST = "localhost"
    ADDRESS = "IP literal"
    HTTP = "http"
    PORT = "port"


class UrlRefused(ValueError):
    """The URL may not be an endpoint's. `reason` is a sentence for the person who typed it, `why` its kind."""

    def __init__(self, reason: str, why: Why) -> None:
        super().__init__(reason)
        self.reason = reason
        self.why = why


def split_url(url: str) -> tuple[str, str, int]:
    """(scheme, host, port) of a URL; the scheme in small letters, an IPv6 address in brackets. `UrlRefused`."""
    if not 0 < len(url) <= LONGEST_URL:
        raise UrlRefused(f"The URL must have 1 to {LONGEST_URL} characters.", Why.LENGTH)
    if re.search(r"[\x00-\x20\x7f\\]", url):
        raise UrlRefused("The URL may not contain spaces, control characters or backslashes.", Why.CHARACTERS)
    if not url.isascii():
        raise UrlRefused("Write the host in punycode and percent-encode the rest of the URL.", Why.ASCII)
    found = _URL.match(url)
    if found is None:
        raise UrlRefused("The URL must look like https://host/path.", Why.UNPARSABLE)
    scheme, authority, rest = found[1].lower(), found[2], found[3] or ""
    if scheme not in DEFAULT_PORT:
        raise UrlRefused("The URL must start with https://.", Why.SCHEME)
    if "@" in authority:
        raise UrlRefused("The URL may not contain a user name or password.", Why.USERINFO)
    if "#" in rest:
        raise UrlRefused("The URL may not contain a fragment (#).", Why.FRAGMENT)
    parts = _AUTHORITY.match(authority)
    if parts is None:
        raise UrlRefused("The host or the port of the URL is not valid.", Why.UNPARSABLE)
    host, port = parts[1], int(parts[2]) if parts[2] else DEFAULT_PORT[scheme]
    if not 0 < port < 65536:
        raise UrlRefused("The port of the URL is not valid: it is a number from 1 to 65535.", Why.PORT)
    if host.startswith("["):
        try:
            IPv6Address(host[1:-1])
        except ValueError:
            raise UrlRefused("The host in brackets is not an IPv6 address.", Why.UNPARSABLE) from None
    return scheme, host, port


def check_name(name: str, *, listed: bool) -> None:
    """`UrlRefused` unless `name`, in small letters and without a dot at its end, is a name of the public DNS.

    A `listed` name, one that RELAY_EGRESS_HOSTS has, may be a single label or belong to an internal domain.
    """
    labels = name.split(".")
    if len(name) > _LONGEST_NAME or not all(_LABEL.match(label) for label in labels):
        raise UrlRefused("The host is not a valid domain name.", Why.HOST_NAME)
    if _NUMERIC.match(labels[-1]):
        raise UrlRefused("The host looks like an IP address in an unusual notation; use a host name.", Why.NUMERIC_HOST)
    if not listed and len(labels) < 2:
        raise UrlRefused(
            "The host must be a full domain name such as hooks.example.com; a single word may be called only when "
            "RELAY_EGRESS_HOSTS lists it.",
            Why.HOST_NAME,
        )
    if not listed and ("." + name).endswith(_INTERNAL):
        raise UrlRefused(
            "The host belongs to an internal domain; it may be called only when RELAY_EGRESS_HOSTS lists it and its "
            "addresses are in RELAY_EGRESS_ALLOW.",
            Why.INTERNAL,
        )
    if any(label.startswith("xn--") for label in labels):
        try:
            idna.decode(name)
        except idna.IDNAError:
            raise UrlRefused("The host is not a valid internationalised domain name.", Why.IDNA) from None


class Hosts:
    """Host names, and suffixes such as `*.svc.cluster.local`, which stand for every name below them."""

    __slots__ = ("_names", "_suffixes", "patterns")

    def __init__(self, patterns: tuple[str, ...] = ()) -> None:
        """ValueError when one is neither; the text says what it should be."""
        self.patterns = tuple(pattern.lower().rstrip(".") for pattern in patterns)
        for pattern in self.patterns:
            labels = pattern.removeprefix("*.").split(".")
            if not all(_LABEL.match(label) for label in labels) or _NUMERIC.match(labels[-1]):
                raise ValueError("must be host names with commas between, such as hooks.internal,*.svc.cluster.local")
        self._names = frozenset(pattern for pattern in self.patterns if not pattern.startswith("*."))
        self._suffixes = tuple(pattern[1:] for pattern in self.patterns if pattern.startswith("*."))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._names or name.endswith(self._suffixes))
