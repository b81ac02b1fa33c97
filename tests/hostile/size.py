"""How large these trials are: small in the gate, large in the soak run."""

from __future__ import annotations

import os

SOAK = os.environ.get("RELAY_SOAK") == "1"
