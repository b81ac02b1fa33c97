"""Sending prepared requests and reporting, with evidence, what became of each.

`base` is the interface; `curl` and `requests` are the transports that implement it, of which RELAY_TRANSPORT names one;
`single` makes one call by itself. A verdict is decided by what was written and what came back, never by the class of an
error: the same reset appears before and after the receiver has processed a request.
"""
