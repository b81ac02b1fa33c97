"""What `up` prints when everything runs: where to look, who may enter, and lines to paste."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from relay.bootstrap import USER, Credentials
from relay.supervisor import MANAGE

EVENT = '{"type": "hello.world", "data": {"hello": "world"}}'


def text(address: str, credentials: Credentials) -> str:
    """The whole text. Secrets appear only at the start that made them up, never when the environment gave them."""
    manage = f"{_data_dir()}{shlex.quote(sys.executable)} {shlex.quote(str(MANAGE))}"
    if credentials.password_given:
        password = "password: the one in RELAY_BOOTSTRAP_PASSWORD"  # noqa: S105 - names it
    elif credentials.password:
        password = f"password {credentials.password}   (shown this once)"
    else:
        password = f"password as before (new one: {manage} changepassword {USER})"
    make_key = ""
    if credentials.key_given:
        key, bearer = "the one in RELAY_BOOTSTRAP_KEY", '"Authorization: Bearer $RELAY_BOOTSTRAP_KEY"'
    elif credentials.key:
        key, bearer = f"{credentials.key}   (shown this once)", shlex.quote(f"Authorization: Bearer {credentials.key}")
    else:
        key = f"as before (new one: {manage} createkey NAME)"
        make_key, bearer = f"  RELAY_KEY=$({manage} createkey trial)\n", '"Authorization: Bearer $RELAY_KEY"'
    return f"""
Relay is running. Ctrl-C stops it.

  admin     {address}/admin/
            user {USER}, {password}
  API key   {key}
  API docs  {address}/v1/docs

To see a delivery, start a receiver in another terminal, in the same environment; it makes an endpoint for itself and
shows what arrives:

  {manage} listen

Then submit an event:

{make_key}  curl -sS {address}/v1/events -H {bearer} -H 'Content-Type: application/json' -d '{EVENT}'
"""


def _data_dir() -> str:
    """What a pasted command needs to find the same data."""
    given = os.environ.get("RELAY_DATA_DIR", "").strip()
    return f"RELAY_DATA_DIR={shlex.quote(str(Path(given).expanduser().absolute()))} " if given else ""
