"""What the environment says, read once and checked: `load` gives a `Config` or raises `BadVariable`.

A wrong or missing value is answered with one sentence that names the variable and says what it should be. The value
itself is never repeated, since it may be a secret that was put under the wrong name.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from deliveries import failpoints
from deliveries.addresses import Address
from deliveries.failpoints import Failpoint
from deliveries.url_grammar import Hosts
from relay import roles
from relay.embedded import database_parameters
from relay.own_listeners import listeners

Network = IPv4Network | IPv6Network

BASE_DIR = Path(__file__).resolve().parent.parent
LOOPBACK_NETWORKS = "127.0.0.0/8,::1/128"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
SECRET_KEY_LENGTH = 32

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off", ""})


class BadVariable(ValueError):
    """A variable of the environment is wrong or missing; the text is one whole sentence that names it."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}.")
        self.name = name


@dataclass(frozen=True, slots=True, repr=False)
class Config:
    """The whole environment, typed. Durations are milliseconds, sizes bytes. No repr: it holds secrets."""

    data_dir: Path
    embedded: bool
    database: dict[str, str]
    migration_database: dict[str, str] | None
    huey_url: str
    secret_key: str | None
    secret_key_fallbacks: tuple[str, ...]
    debug: bool
    host: str
    port: int
    allowed_hosts: tuple[str, ...]
    public_url: str
    egress_allow: tuple[Network, ...]
    egress_deny: tuple[Network, ...]
    egress_hosts: tuple[str, ...]
    egress_http: bool
    egress_nat64: bool
    egress_ports: frozenset[int]
    own_listeners: dict[tuple[Address | None, int], str]
    bootstrap_key: str | None
    bootstrap_password: str | None
    lease_ttl_ms: int
    heartbeat_ms: int
    http_timeout_ms: int
    sweep_ms: int
    poison_losses: int
    breaker_failures: int
    disable_after_hours: int
    disable_span_hours: int
    disable_deliveries: int
    transport: str
    dispatchers: int
    web_processes: int
    web_threads: int
    max_payload_bytes: int
    max_batch_bytes: int
    unknown_types: str
    unknown_told_after_s: int
    log_level: str
    failpoint: Failpoint | None


class Reader:
    """Typed reads of one environment. Each raises `BadVariable`; an empty value counts as not set."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ

    def text(self, name: str, default: str = "") -> str:
        return self.environ.get(name, "").strip() or default

    def optional(self, name: str) -> str | None:
        return self.text(name) or None

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        text = self.text(name, str(default))
        if not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise BadVariable(name, f"must be a whole number from {least} to {most}")
        return int(text)

    def boolean(self, name: str, *, default: bool) -> bool:
        text = self.environ.get(name, "").strip().lower()
        if not text:
            return default
        if text in _YES or text in _NO:
            return text in _YES
        raise BadVariable(name, "must be one of on, off, true, false, yes, no, 1 or 0")

    def choice(self, name: str, default: str, among: tuple[str, ...]) -> str:
        text = self.text(name, default)
        if text not in among:
            raise BadVariable(name, f"must be one of {', '.join(among)}")
        return text

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(word.strip() for word in self.text(name).split(",") if word.strip())

    def networks(self, name: str, default: str) -> tuple[Network, ...]:
        """CIDRs with commas between. A variable that is set, even to nothing, replaces the default."""
        words = self.environ.get(name, default).split(",")
        return tuple(_network(name, word.strip()) for word in words if word.strip())

    def ports(self, name: str) -> frozenset[int]:
        words = self.words(name)
        if not all(re.fullmatch(r"[0-9]{1,5}", word) and 0 < int(word) < 65536 for word in words):
            raise BadVariable(name, "must be port numbers from 1 to 65535 with commas between, such as 3000,9443")
        return frozenset(map(int, words))

    def hosts(self, name: str) -> tuple[str, ...]:
        try:
            return Hosts(self.words(name)).patterns
        except ValueError as wrong:
            raise BadVariable(name, str(wrong)) from None

    def database(self, name: str) -> dict[str, str] | None:
        """libpq's parameters out of a `postgresql://` URL, or None when it is not set."""
        url = self.text(name)
        if not url:
            return None
        if url.partition("://")[0] not in ("postgresql", "postgres"):  # several hosts are no URL for everybody
            raise BadVariable(name, "must be a postgresql:// URL: Relay keeps its record in PostgreSQL only")
        try:
            parameters = conninfo_to_dict(url)
        except ProgrammingError:
            raise BadVariable(name, "is not a URL that PostgreSQL's client library can read") from None
        if not parameters.get("dbname"):
            raise BadVariable(name, "must name a database, as in postgresql://user@host/relay")
        return {key: str(value) for key, value in parameters.items() if value is not None}

    def secret(self, name: str, *, required: bool) -> str | None:
        text = self.optional(name)
        if text is None:
            if required:
                raise BadVariable(
                    name,
                    "is missing: with DATABASE_URL set it must be given, "
                    f"as {SECRET_KEY_LENGTH} or more random characters that stay the same from start to start",
                )
            return None
        if len(text) < SECRET_KEY_LENGTH:
            raise BadVariable(name, f"must have at least {SECRET_KEY_LENGTH} characters")
        return text

    def origin(self, name: str) -> str:
        text = self.text(name).rstrip("/")
        if not text:
            return ""
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
            raise BadVariable(name, "must be an address such as https://relay.example.com, without a path")
        return text

    def huey(self, name: str) -> str:
        text = self.text(name)
        if text and urlsplit(text).scheme not in ("redis", "rediss", "postgresql", "postgres"):
            raise BadVariable(name, "must be a postgresql://, redis:// or rediss:// URL")
        return text

    def password(self, name: str) -> str | None:
        text = self.optional(name)
        if text is not None and len(text) < 8:
            raise BadVariable(name, "must have at least 8 characters")
        return text

    def failpoint(self, name: str) -> Failpoint | None:
        text = self.optional(name)
        try:
            return None if text is None else failpoints.parse(text)
        except ValueError as wrong:
            raise BadVariable(name, str(wrong)) from None

    def directory(self, name: str, default: Path) -> Path:
        try:
            path = Path(self.text(name, str(default))).expanduser().absolute()
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return path  # What stands in its way is told by who makes it.
        except OSError as refused:
            raise BadVariable(name, f"must be a folder that Relay may look into ({refused.strerror})") from None
        except RuntimeError:
            raise BadVariable(name, "begins with the home folder of a user that there is not") from None
        if not stat.S_ISDIR(mode):
            raise BadVariable(name, "must be a folder, or a name that is still free")
        return path


def _network(name: str, text: str) -> Network:
    try:
        network: Network = ip_network(text, strict=False)
    except ValueError:
        raise BadVariable(
            name, "must be networks in CIDR form with commas between, such as 10.1.0.0/16,fd00::/8"
        ) from None
    try:
        return ip_network(text)
    except ValueError:
        raise BadVariable(
            name, f"has an address with bits set beyond the length of its prefix; the network is written {network}"
        ) from None


def load(environ: Mapping[str, str]) -> Config:
    """Read and check everything. Raises `BadVariable` at the first problem; touches neither disk nor network."""
    read = Reader(environ)
    data_dir = read.directory("RELAY_DATA_DIR", BASE_DIR / ".relay")
    external = read.database("DATABASE_URL")
    embedded = external is None
    migrating = read.database("RELAY_MIGRATE_DATABASE_URL")
    if migrating is not None and (external is None or migrating["dbname"] != external["dbname"]):
        raise BadVariable("RELAY_MIGRATE_DATABASE_URL", "must name the same database as DATABASE_URL")
    huey_url = read.huey("HUEY_URL")
    host = read.text("RELAY_HOST", "127.0.0.1")
    port = read.integer("RELAY_PORT", 8000, least=1, most=65535)
    public_url = read.origin("RELAY_PUBLIC_URL")
    second, day = 1_000, 86_400_000
    return Config(
        data_dir=data_dir,
        embedded=embedded,
        database=database_parameters(data_dir) if external is None else external,
        migration_database=database_parameters(data_dir, user=roles.MIGRATOR) if embedded else migrating,
        huey_url=huey_url,
        secret_key=read.secret("RELAY_SECRET_KEY", required=not embedded),
        secret_key_fallbacks=read.words("RELAY_SECRET_KEY_FALLBACKS"),
        debug=read.boolean("RELAY_DEBUG", default=False),
        host=host,
        port=port,
        allowed_hosts=_allowed_hosts(read, host, public_url),
        public_url=public_url,
        egress_allow=read.networks("RELAY_EGRESS_ALLOW", LOOPBACK_NETWORKS if embedded else ""),
        egress_deny=read.networks("RELAY_EGRESS_DENY", ""),
        egress_hosts=read.hosts("RELAY_EGRESS_HOSTS"),
        egress_http=read.boolean("RELAY_EGRESS_HTTP", default=False),
        egress_nat64=read.boolean("RELAY_EGRESS_NAT64", default=False),
        egress_ports=read.ports("RELAY_EGRESS_PORTS"),
        own_listeners=listeners(
            web_port=port, databases=[one for one in (external, migrating) if one is not None], huey_url=huey_url
        ),
        bootstrap_key=read.optional("RELAY_BOOTSTRAP_KEY"),
        bootstrap_password=read.password("RELAY_BOOTSTRAP_PASSWORD"),
        lease_ttl_ms=read.integer("RELAY_LEASE_TTL_MS", 30_000, least=second, most=day),
        heartbeat_ms=read.integer("RELAY_HEARTBEAT_MS", 5_000, least=100, most=day),
        http_timeout_ms=read.integer("RELAY_HTTP_TIMEOUT_MS", 15_000, least=100, most=day),
        sweep_ms=read.integer("RELAY_SWEEP_MS", 5_000, least=100, most=day),
        poison_losses=read.integer("RELAY_POISON_LOSSES", 3, least=1, most=100),
        breaker_failures=read.integer("RELAY_BREAKER_FAILURES", 10, least=0, most=1_000_000),
        disable_after_hours=read.integer("RELAY_DISABLE_AFTER_HOURS", 120, least=1, most=8_760),
        disable_span_hours=read.integer("RELAY_DISABLE_SPAN_HOURS", 12, least=0, most=8_760),
        disable_deliveries=read.integer("RELAY_DISABLE_DELIVERIES", 10, least=1, most=1_000_000),
        transport=read.choice("RELAY_TRANSPORT", "curl", ("curl", "requests")),
        dispatchers=read.integer("RELAY_DISPATCHERS", 2, least=1, most=127),
        web_processes=read.integer("RELAY_WEB_PROCESSES", 2, least=1, most=256),
        web_threads=read.integer("RELAY_WEB_THREADS", 4, least=1, most=256),
        max_payload_bytes=read.integer("RELAY_MAX_PAYLOAD_BYTES", 262_144, least=1_024, most=64 * 1_048_576),
        max_batch_bytes=read.integer("RELAY_MAX_BATCH_BYTES", 16 * 1_048_576, least=1_024, most=256 * 1_048_576),
        unknown_types=read.choice("RELAY_UNKNOWN_TYPES", "accept", ("accept", "refuse")),
        unknown_told_after_s=read.integer("RELAY_UNKNOWN_TOLD_AFTER_S", 3_600, least=1, most=30 * 86_400),
        log_level=read.choice("RELAY_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR")),
        failpoint=read.failpoint("RELAY_FAILPOINT"),
    )


def _allowed_hosts(read: Reader, host: str, public_url: str) -> tuple[str, ...]:
    """The Host headers that are answered: those named, or loopback and what we listen on; always the public one."""
    named = read.words("RELAY_ALLOWED_HOSTS")
    if not named:
        listening = () if host in ("0.0.0.0", "::", *LOOPBACK_HOSTS) else (host,)  # noqa: S104 - compared, not bound
        named = (*LOOPBACK_HOSTS, *listening)
    public = urlsplit(public_url).hostname
    return named if public is None or public in named else (*named, public)


def or_stop(read: Callable[[], Config]) -> Config:
    """The config, or the end of the process: one sentence on stderr, exit code 2, no traceback."""
    try:
        return read()
    except BadVariable as bad:
        stop(str(bad))


def stop(sentence: str) -> NoReturn:
    """End the process for a reason that its environment gave: exit code 2."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()
    raise SystemExit(2)


def current() -> Config:
    """The environment of this process."""
    return or_stop(lambda: load(os.environ))
