"""Writes `docs/errors.md` from `deliveries/api/errors.py`: `python -m relay.error_docs > docs/errors.md`."""

from __future__ import annotations

import sys

from deliveries.api.errors import CODES, SPECIFIC

HEAD = """# Errors

Made from `deliveries/api/errors.py` by `python -m relay.error_docs > docs/errors.md`; a test compares the two.

Every refusal of the API has one shape:

```json
{
  "code": "invalid",
  "detail": "url: is required",
  "errors": [{"field": "url", "detail": "is required"}]
}
```

`code` is for programs and does not change; `detail` is for people and may. `errors` is there when certain fields,
headers or query parameters are at fault, and names all of them at once. Some answers say more: a 409 or 412 about a row
shows it as it is now, in `current`.

| status | code | means |
|---|---|---|
"""
FOOT = """
## What to do

- **400, 422**: the request is wrong and stays wrong; nothing of it was stored. Mend it.
- **401, 403**: another key, or another scope. A revoked key is refused everywhere two seconds after its revocation.
- **404**: it does not exist, or it is another tenant's. The two look the same.
- **409**: read `current`, decide anew. A submit with `idempotency_conflict` or `id_conflict` was stored before, as
  another event.
- **412**: somebody changed it since you read it. Read it again, then repeat the change.
- **413**: send less at once. It is refused before it is read.
- **429, 503**: wait as `Retry-After` says, and send the same again. Give events an `Idempotency-Key` (or an `id`): then
  none is stored twice, also when an answer was lost.
- **500**: a fault of ours, with its reason in the server's log. Whether the request was carried out is not known: with
  a key or an id, send it again.
"""


def render() -> str:
    """The whole document."""
    rows = [(status, code, text) for status, (code, text) in CODES.items()]
    rows += [(status, code, text) for code, (status, text) in SPECIFIC.items()]
    rows.sort(key=lambda row: row[0])
    return HEAD + "".join(f"| {status} | `{code}` | {text} |\n" for status, code, text in rows) + FOOT


if __name__ == "__main__":
    sys.stdout.write(render())
