"""Settings of a process that lacks the condition which `MUTANT` names; everything else is as usual."""

from __future__ import annotations

import os

from relay.settings import *  # noqa: F403
from tests.support.mutants import apply

apply(os.environ["MUTANT"])
