"""The secret key that is made up at the first start and kept in the data folder."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from relay.embedded import make_data_dir

FILE = "secret_key"


def kept(data_dir: Path) -> str:
    """The key in `data_dir`, made first if there is none (readable by its owner only).

    Two processes that start at once get the same key: the file is linked into place whole, and the first one wins.
    Raises OSError when the folder cannot be made or written.
    """
    path = data_dir / FILE
    if not path.exists():
        make_data_dir(data_dir)
        draft = data_dir / f".{FILE}.{os.getpid()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(48))
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            pass  # Another process was first, and its key is the one that counts.
        finally:
            draft.unlink()
    return path.read_text().strip()
