"""Processes that do not outlive their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def bound_to_parent(signum: signal.Signals) -> Callable[[], None] | None:
    """A `preexec_fn` after which the kernel sends the child `signum` when the thread that started it ends.

    Guarantee: on Linux no child is left behind, even after kill -9. Limit: elsewhere this is None and the child stays
    until the next start finds it. Call it from a thread that lives as long as the child should: the main one.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def bind() -> None:
        prctl(PR_SET_PDEATHSIG, int(signum))
        if os.getppid() != parent:  # The parent ended before the kernel was told.
            os._exit(1)

    return bind


def end_with_parent(signum: signal.Signals) -> None:
    """The same, said by the child about itself, with the same limit: for children that somebody else starts."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signum))
