"""What commands print for people, on a terminal and into a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from relay.cli import text
from relay.cli.session import UsageError, since
from tests.receiver import Answer, Receiver

BASE_DIR = Path(__file__).resolve().parent.parent.parent
EVIL = "a\x1b]0;title\x07\x9b31m"
ID = "dlv_" + "7" * 32
DELIVERY = {
    "id": ID, "event_id": "evt_1", "event_type": EVIL, "endpoint_id": "ep_" + "8" * 32, "status": "failed",
    "run_id": "01990f3a-7d52-7c1e-9a44-5b1f0c6d2e90", "attempts": 3, "created_at": "2026-07-01T12:00:00Z",
    "updated_at": "2026-07-01T12:00:00Z",
}  # fmt: skip
PAGE = Answer(200, (), json.dumps({"items": [DELIVERY], "next_cursor": None}).encode())


def environment(url: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}}
    return {
        **kept,
        "RELAY_URL": url,
        "RELAY_KEY": "rk_of-no-use",
        "TERM": "xterm-256color",
        "TZ": "Europe/Berlin",
        **more,
    }


def on_a_terminal(columns: int, *words: str, **variables: str) -> str:
    """What a terminal of that width gets."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with Receiver(lambda _: PAGE) as receiver:
        process = subprocess.Popen(
            [sys.executable, "-m", "relay", *words],
            cwd=BASE_DIR, env=environment(receiver.url, **variables), stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        said = b""
        try:
            while piece := os.read(ours, 65536):
                said += piece
        except OSError:
            pass  # on Linux the end of a terminal is an error
        finally:
            os.close(ours)
        assert process.wait(30) == 0, said
    return said.decode()


def test_a_table_fits_the_terminal_and_never_cuts_an_id() -> None:
    for columns in (80, 120):
        said = on_a_terminal(columns, "deliveries", NO_COLOR="1")
        lines = said.splitlines()
        assert max(map(len, lines)) <= columns
        assert ID in said
        assert "failed" in said
        assert ("2026-07-01 14:00:00" in said) == (columns == 120)
    assert ID in on_a_terminal(50, "deliveries", NO_COLOR="1")


def test_colours_are_for_terminals_and_not_for_who_does_not_want_them() -> None:
    coloured = on_a_terminal(100, "deliveries")
    assert "\x1b[31mfailed" in coloured
    assert "\x1b" not in on_a_terminal(100, "deliveries", NO_COLOR="1")


def test_what_came_from_elsewhere_does_not_command_the_terminal() -> None:
    said = on_a_terminal(200, "deliveries")
    assert "title" in said
    for control in ("\x1b]", "\x07", "\x9b"):
        assert control not in said
    assert text.clean(EVIL) == "a\\x1b]0;title\\x07\\x9b31m"
    assert text.clean("line\n\ttab caf\u00e9") == "line\n\ttab caf\u00e9"


def test_into_a_pipe_nothing_is_cut_and_times_are_local() -> None:
    with Receiver(lambda _: PAGE) as receiver:
        said = subprocess.run(
            [sys.executable, "-m", "relay", "deliveries"],
            cwd=BASE_DIR, env=environment(receiver.url, COLUMNS="20"), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert said.returncode == 0, said.stderr
    (line,) = said.stdout.splitlines()[1:]
    assert ID in line
    assert str(DELIVERY["endpoint_id"]) in line
    assert line.rstrip().endswith("2026-07-01 14:00:00")
    assert "\x1b" not in said.stdout


def test_a_reader_that_goes_away_is_no_error_to_tell_of() -> None:
    with Receiver(lambda _: PAGE) as receiver:
        command = f"{sys.executable} -m relay deliveries --json | true"
        said = subprocess.run(
            ["bash", "-c", command],
            cwd=BASE_DIR,
            env=environment(receiver.url),
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize(
    ("given", "ago"),
    [
        ("90s", timedelta(seconds=90)), ("5m", timedelta(minutes=5)), ("2h", timedelta(hours=2)),
        ("3d", timedelta(days=3)), ("1w", timedelta(weeks=1)),
    ],
)  # fmt: skip
def test_a_time_may_be_so_long_ago(given: str, ago: timedelta) -> None:
    assert abs(datetime.now(UTC) - ago - since(given)) < timedelta(seconds=5)


def test_a_time_may_be_one() -> None:
    assert since("2030-01-31T09:30:00Z") == datetime(2030, 1, 31, 9, 30, tzinfo=UTC)
    assert since("2030-01-31").tzinfo is not None
    for wrong in ("", "soon", "2x", "-2h", "2030-13-01", "9999-12-31T23:59:59-23:59"):
        with pytest.raises(UsageError):
            since(wrong)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-3, "0 s"), (59, "59 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (200_000, "2 d")]
)
def test_an_age_is_shown_in_one_word(seconds: float, shown: str) -> None:
    assert text.age_of(seconds) == shown


def test_no_help_is_without_words() -> None:
    """Every command and every group says what it does."""
    said = subprocess.run(
        [sys.executable, "-m", "relay", "--help"], cwd=BASE_DIR, capture_output=True, text=True, timeout=60
    ).stdout
    names = re.findall(r"^  ([a-z-]+)(  +\S.*)?$", said.partition("Commands:")[2], re.MULTILINE)
    assert len(names) > 15
    assert all(words.strip() for _, words in names)
