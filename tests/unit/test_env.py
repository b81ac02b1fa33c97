"""What the environment may say, and the one sentence for what it may not."""

from __future__ import annotations

import os
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path

import pytest

from relay.env import BASE_DIR, BadVariable, Config, load

KEY = "k" * 32
EXTERNAL = {"DATABASE_URL": "postgresql://relay:p%40ss@db.example/relay?sslmode=require", "RELAY_SECRET_KEY": KEY}


def refused(environ: dict[str, str]) -> str:
    with pytest.raises(BadVariable) as caught:
        load(environ)
    return str(caught.value)


def test_an_empty_environment_is_the_embedded_deployment() -> None:
    config = load({})
    assert config.embedded
    assert config.data_dir == BASE_DIR / ".relay"
    assert config.database["dbname"] == "relay"
    assert config.secret_key is None
    assert (config.host, config.port) == ("127.0.0.1", 8000)
    assert (config.lease_ttl_ms, config.heartbeat_ms, config.http_timeout_ms) == (30_000, 5_000, 15_000)
    assert config.egress_allow == (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    assert config.allowed_hosts == ("localhost", "127.0.0.1", "[::1]")


def test_an_external_database_allows_no_private_address_by_default() -> None:
    config = load(EXTERNAL)
    assert not config.embedded
    assert config.egress_allow == ()
    assert config.database == {
        "dbname": "relay",
        "user": "relay",
        "password": "p@ss",
        "host": "db.example",
        "sslmode": "require",
    }


def test_naming_networks_replaces_the_default_even_with_none() -> None:
    assert load({"RELAY_EGRESS_ALLOW": ""}).egress_allow == ()
    assert load({"RELAY_EGRESS_ALLOW": " 10.1.0.0/16 , fd00::/8 "}).egress_allow == (
        ip_network("10.1.0.0/16"),
        ip_network("fd00::/8"),
    )


def test_what_may_be_called_is_read() -> None:
    config = load(
        {
            "RELAY_EGRESS_DENY": "10.1.9.0/24",
            "RELAY_EGRESS_HOSTS": "Hooks.internal, *.svc.cluster.local",
            "RELAY_EGRESS_NAT64": "on",
            "RELAY_EGRESS_PORTS": "3000, 9443",
        }
    )
    assert config.egress_deny == (ip_network("10.1.9.0/24"),)
    assert config.egress_hosts == ("hooks.internal", "*.svc.cluster.local")
    assert config.egress_nat64
    assert config.egress_ports == {3000, 9443}


@pytest.mark.parametrize(
    "environment, listening",
    [
        ({}, {(None, 8000)}),  # the embedded database has no port
        ({"RELAY_PORT": "9000"}, {(None, 9000)}),
        ({"DATABASE_URL": "postgresql://u@db.example/relay"}, {(None, 8000), (None, 5432)}),
        ({"DATABASE_URL": "postgresql://u@10.0.0.7:6432/relay"}, {(None, 8000), (None, 6432), ("10.0.0.7", 6432)}),
        ({"DATABASE_URL": "postgresql://u@/relay?host=/run/postgresql&port=5433"}, {(None, 8000), (None, 5433)}),
        (
            {"DATABASE_URL": "postgresql://u@10.0.0.7:1,[fd00::1]:2/relay"},
            {(None, 8000), (None, 1), ("10.0.0.7", 1), (None, 2), ("fd00::1", 2)},
        ),
        (
            {"DATABASE_URL": "postgresql://u@db/relay", "RELAY_MIGRATE_DATABASE_URL": "postgresql://m@db:5433/relay"},
            {(None, 8000), (None, 5432), (None, 5433)},
        ),
        ({"HUEY_URL": "redis://localhost"}, {(None, 8000), (None, 6379)}),
        ({"HUEY_URL": "rediss://:p%40w@[::1]:6380/1"}, {(None, 8000), (None, 6380), ("::1", 6380)}),
        ({"HUEY_URL": "postgresql://u@10.0.0.9/huey"}, {(None, 8000), (None, 5432), ("10.0.0.9", 5432)}),
    ],
)
def test_relay_knows_where_its_own_parts_listen(
    environment: dict[str, str], listening: set[tuple[str | None, int]]
) -> None:
    config = load({"RELAY_SECRET_KEY": EXTERNAL["RELAY_SECRET_KEY"], **environment})
    found = {(None if address is None else str(address), port) for address, port in config.own_listeners}
    assert found == listening


def test_a_variable_that_is_set_to_nothing_counts_as_not_set() -> None:
    assert load({"RELAY_PORT": "", "DATABASE_URL": "", "RELAY_EGRESS_HTTP": ""}) == load({})


def test_curl_sends_unless_requests_is_asked_for() -> None:
    assert load({}).transport == load({"RELAY_TRANSPORT": "curl"}).transport == "curl"
    assert load({"RELAY_TRANSPORT": "requests"}).transport == "requests"


@pytest.mark.parametrize("text, meant", [("on", True), ("TRUE", True), ("1", True), ("off", False), ("No", False)])
def test_a_switch_has_many_spellings(text: str, meant: bool) -> None:
    assert load({"RELAY_EGRESS_HTTP": text}).egress_http is meant


@pytest.mark.parametrize(
    "name, value",
    [
        ("DATABASE_URL", "mysql://somewhere/relay"),
        ("DATABASE_URL", "postgresql://somewhere"),
        ("DATABASE_URL", "postgresql://somewhere/relay?no_such_parameter=1"),
        ("HUEY_URL", "amqp://somewhere"),
        ("RELAY_SECRET_KEY", "short"),
        ("RELAY_PORT", "0"),
        ("RELAY_PORT", "65536"),
        ("RELAY_PORT", "80a"),
        ("RELAY_PORT", "-1"),
        ("RELAY_LEASE_TTL_MS", "999"),
        ("RELAY_HEARTBEAT_MS", "5s"),
        ("RELAY_HTTP_TIMEOUT_MS", "1.5"),
        ("RELAY_POISON_LOSSES", "0"),
        ("RELAY_POISON_LOSSES", "101"),
        ("RELAY_TRANSPORT", "carrier pigeon"),
        ("RELAY_TRANSPORT", "Requests"),
        ("RELAY_DISPATCHERS", "0"),
        ("RELAY_DISPATCHERS", "128"),
        ("RELAY_SWEEP_MS", "١٢٣٤"),
        ("RELAY_MAX_PAYLOAD_BYTES", "12"),
        ("RELAY_EGRESS_ALLOW", "10.0.0.1/8"),
        ("RELAY_EGRESS_ALLOW", "example.com"),
        ("RELAY_EGRESS_DENY", "10.0.0.1/8"),
        ("RELAY_EGRESS_HOSTS", "https://hooks.internal"),
        ("RELAY_EGRESS_HOSTS", "shop.internal,*"),
        ("RELAY_EGRESS_HTTP", "maybe"),
        ("RELAY_EGRESS_NAT64", "64:ff9b::/96"),
        ("RELAY_EGRESS_PORTS", "0"),
        ("RELAY_EGRESS_PORTS", "3000,65536"),
        ("RELAY_EGRESS_PORTS", "3000-3010"),
        ("RELAY_PUBLIC_URL", "hooks.example.org"),
        ("RELAY_PUBLIC_URL", "https://hooks.example.org/path"),
        ("RELAY_BOOTSTRAP_PASSWORD", "1234567"),
        ("RELAY_LOG_LEVEL", "LOUD"),
        ("RELAY_DATA_DIR", __file__),
    ],
)
def test_a_wrong_value_is_one_sentence_that_names_the_variable_and_keeps_the_value_to_itself(
    name: str, value: str
) -> None:
    sentence = refused({name: value})
    assert sentence.startswith(f"{name} ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert len(value) < 3 or value not in sentence


def test_an_external_database_needs_a_secret_key() -> None:
    sentence = refused({"DATABASE_URL": EXTERNAL["DATABASE_URL"]})
    assert sentence.startswith("RELAY_SECRET_KEY is missing")
    assert "p@ss" not in sentence


def test_what_we_listen_on_is_a_host_that_is_answered() -> None:
    assert "10.0.0.5" in load({"RELAY_HOST": "10.0.0.5"}).allowed_hosts
    assert "0.0.0.0" not in load({"RELAY_HOST": "0.0.0.0"}).allowed_hosts  # noqa: S104


def test_the_public_host_is_answered_whatever_else_is_named() -> None:
    config = load({"RELAY_PUBLIC_URL": "https://relay.example.com/", "RELAY_ALLOWED_HOSTS": "inner, other"})
    assert config.public_url == "https://relay.example.com"
    assert config.allowed_hosts == ("inner", "other", "relay.example.com")


def test_the_config_does_not_show_its_secrets() -> None:
    config: Config = load({**EXTERNAL, "RELAY_BOOTSTRAP_KEY": "b" * 20})
    for secret in (KEY, "p@ss", "b" * 20):
        assert secret not in repr(config)


@pytest.mark.parametrize(
    "name, value", [("RELAY_PORT", "eighty"), ("HUEY_URL", "ftp://x"), ("DATABASE_URL", "postgresql://u:hunter2@h")]
)
def test_a_wrong_value_stops_the_start_with_exit_code_2_and_no_traceback(name: str, value: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=BASE_DIR,
        env={**os.environ, "RELAY_DATA_DIR": str(tmp_path / "data"), name: value},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"{name} ")
    assert len(done.stderr.splitlines()) == 1
    assert "hunter2" not in done.stderr


def test_an_unsafe_combination_stops_a_command_and_names_the_variables(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "run_huey"],
        cwd=BASE_DIR,
        env={**os.environ, "RELAY_DATA_DIR": str(tmp_path / "data"), "RELAY_LEASE_TTL_MS": "16000"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "RELAY_LEASE_TTL_MS" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_made_up_secret_key_is_kept_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    from relay.secret_key import FILE, kept

    first = kept(tmp_path / "data")
    assert kept(tmp_path / "data") == first
    assert len(first) >= 32
    assert (tmp_path / "data" / FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "data").iterdir()] == [FILE]


def test_a_network_with_bits_beyond_its_prefix_is_answered_with_how_it_is_written() -> None:
    sentence = refused({"RELAY_EGRESS_ALLOW": "fd00::/8, 10.0.0.1/8"})
    assert sentence.startswith("RELAY_EGRESS_ALLOW ")
    assert "bits set beyond" in sentence
    assert "10.0.0.0/8" in sentence


def test_a_data_folder_that_may_not_be_looked_into_is_one_sentence(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)  # Root may look into everything.
    try:
        sentence = refused({"RELAY_DATA_DIR": str(closed / "data")})
    finally:
        os.seteuid(me)
        closed.chmod(0o700)
    assert sentence == "RELAY_DATA_DIR must be a folder that Relay may look into (Permission denied)."


def test_a_data_folder_in_the_home_of_nobody_is_one_sentence() -> None:
    assert refused({"RELAY_DATA_DIR": "~no-such-user/data"}).startswith("RELAY_DATA_DIR begins with the home folder")
