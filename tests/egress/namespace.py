"""Running a scene (tests/egress/inside.py) in a network of its own, where every address is this machine's.

There a connection to 10.0.0.5, 169.254.169.254 or a public address would be made and seen. The namespace is the
test's own and needs no rights: nothing of it can be seen or reached from outside, nor the outside from within.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
SECONDS = 90
_UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--mount")


@functools.cache
def available() -> bool:
    """Whether this machine lets its users make namespaces, and has `unshare` and `ip`."""
    try:
        tried = subprocess.run([*_UNSHARE, "ip", "link", "set", "lo", "up"], capture_output=True, timeout=20)
    except (FileNotFoundError, PermissionError):
        return False
    return tried.returncode == 0


def play(scene: str, *arguments: str, outside: bool = False, **variables: str) -> Any:
    """What the scene found out; `outside` plays it in the network of this machine, with these variables."""
    command = [sys.executable, "-m", "tests.egress.inside", scene, *arguments]
    if not outside:
        command = [*_UNSHARE, *command]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "relay.settings", **variables}
    played = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert played.returncode == 0, played.stderr
    return json.loads(played.stdout.splitlines()[-1])
