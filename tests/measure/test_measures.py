"""The measurements run: what they measure is for a quiet machine, and no test."""

from __future__ import annotations

import pytest

from tests.measure import transport_cpu


def test_the_cpu_of_each_transport_is_measured_over_http_and_https(capsys: pytest.CaptureFixture[str]) -> None:
    transport_cpu.main(50)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[-4:]]
    assert [row[:2] for row in rows] == [
        [name, scheme] for name in ("curl", "requests") for scheme in ("http", "https")
    ]
    assert all(float(figure) > 0 for row in rows for figure in row[2:5])
    assert [int(row[-1]) for row in rows[2:]] == [transport_cpu.WARM_UP + 50] * 2  # a connection for each
