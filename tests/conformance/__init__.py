"""One suite for every transport: each way to fail or answer on the wire, and the verdict that it must lead to.

`cases*.py` are the table, `receiver.py` plays it on real sockets, `checking.py` compares. `python -m tests.conformance`
prints the table and where the transports differ.
"""
