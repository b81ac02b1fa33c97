"""RELAY_TRANSPORT=requests: everything is delivered where pycurl cannot be imported."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.consumer import Consumer
from tests.support.deliveries import attempts_of, endpoint, events, submitted
from tests.support.programs import BASE_DIR
from tests.support.sink import Sink
from tests.support.waiting import wait_until

COUNT = 40


@pytest.fixture
def python_path(tmp_path: Path) -> str:
    """Where Python finds a pycurl that cannot be imported."""
    (tmp_path / "pycurl.py").write_text('raise ImportError("there is no pycurl here")\n')
    return str(tmp_path)


@pytest.mark.usefixtures("emptied")
def test_a_consumer_delivers_without_pycurl_and_settles_what_is_in_flight_when_it_is_stopped(
    tenant: str, python_path: str
) -> None:
    with Sink() as sink, Consumer(RELAY_TRANSPORT="requests", PYTHONPATH=python_path) as consumer:
        endpoint(tenant, sink.url)
        wanted = submitted(events(tenant, COUNT))
        wait_until(lambda: all(one.status == "succeeded" for one in wanted), 30, "everything delivered")
        assert sink.events == {one.webhook_id: 1 for one in wanted}
        assert attempts_of(tenant) == COUNT

        sink._held = True
        (last,) = submitted(events(tenant))
        sink.wait_for(COUNT + 1)
        consumer.kill(signal.SIGTERM)
        assert sink.let_go() == 1
        assert consumer.wait() == 0
        assert not consumer.left()
    assert (last.status, last.operation.attempts) == ("succeeded", 1)


def test_pycurl_is_imported_by_the_default_transport_only(python_path: str) -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import django
django.setup()
import pkgutil, importlib, deliveries
for module in pkgutil.walk_packages(deliveries.__path__, "deliveries."):
    wants_it = module.name.startswith(("deliveries.transport.curl", "deliveries.transport.readiness"))
    if not wants_it or module.name.endswith("curl_names"):
        importlib.import_module(module.name)
assert "pycurl" not in sys.modules
try:
    import deliveries.transport.curl
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, python_path],
        cwd=BASE_DIR, text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("there is no pycurl here\n", 0), done.stderr
