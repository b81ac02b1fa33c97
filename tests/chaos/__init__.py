"""Chaos: many workers, a receiver with every misbehaviour, and faults for minutes; then heal, wait for quiet, check."""
