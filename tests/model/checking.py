"""Runs the model checker on `models/relay.pml`: writes the verifier, compiles it, searches, and reads what it says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).parents[2] / "models" / "relay.pml"
DEPTH = 100_000
MEMORY_MB = 3_000
LIMIT_S = 240


@dataclass(frozen=True, slots=True)
class Search:
    """What a search said. `failure`: the assertion that did not hold, or an invalid end state; None: neither.

    `unreached`: the lines of the model with a step that no execution takes.
    """

    failure: str | None
    complete: bool
    states: int
    unreached: frozenset[int]


def tools() -> tuple[list[str], list[str]] | None:
    """The commands of spin and of a C compiler, from RELAY_SPIN and RELAY_SPIN_CC or from PATH; None: not there."""
    spin = os.environ.get("RELAY_SPIN") or shutil.which("spin")
    compiler = os.environ.get("RELAY_SPIN_CC") or shutil.which("gcc") or shutil.which("cc")
    return (shlex.split(spin), shlex.split(compiler)) if spin and compiler else None


def search(folder: Path, *flags: str, optimize: str = "-O1") -> Search:
    """Search every execution of the model under these -D flags, in an empty `folder`, up to the first failure."""
    found = tools()
    assert found is not None
    spin, compiler = found

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    definitions = [f"-D{flag}" for flag in flags]
    preprocessor = shlex.join([*compiler, "-E", "-x", "c"])
    written = run(*spin, f"-P{preprocessor}", *definitions, "-a", str(MODEL))
    assert "Error" not in written, written
    run(*compiler, optimize, "-w", "-DSAFETY", f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c")
    return read(run("./pan", f"-m{DEPTH}"))


def read(text: str) -> Search:
    """What the verifier printed."""
    failure = re.search(r"^pan:1: (.*) \(at depth \d+\)$", text, re.MULTILINE)
    errors = re.search(r"^State-vector .* errors: (\d+)$", text, re.MULTILINE)
    states = re.search(r"^\s*([0-9.e+]+) states, stored", text, re.MULTILINE)
    assert errors and states, text
    assert bool(failure) == (errors[1] != "0"), text
    broken_off = ("max search depth too small", "Search not completed", "out of memory", "MEMLIM", "exceeds")
    return Search(
        failure=failure[1] if failure else None,
        complete=not any(words in text for words in broken_off),
        states=int(float(states[1])),
        unreached=frozenset(int(line) for line in re.findall(r"relay\.pml:(\d+), state \d+, \"(?!-end-)", text)),
    )
