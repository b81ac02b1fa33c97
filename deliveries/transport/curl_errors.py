"""One plain sentence for what libcurl reports. The code never decides a verdict."""

from __future__ import annotations

import os

import pycurl

from deliveries.transport.base import Evidence

_LONGEST = 200
_CLIENT_CERTIFICATE = "The client certificate and its key are not valid PEM, or do not belong together."
_SENTENCES = {
    pycurl.E_GOT_NOTHING: "The receiver closed the connection without an answer.",
    pycurl.E_WRITE_ERROR: "The response body was longer than 256 KiB; the rest was not read.",
    pycurl.E_PARTIAL_FILE: "The response body was cut short.",
    pycurl.E_SEND_FAIL_REWIND: "The connection, used before, broke before an answer came.",
    pycurl.E_ABORTED_BY_CALLBACK: "The request would have been sent a second time; it was stopped.",
    pycurl.E_BAD_CONTENT_ENCODING: "The response used a transfer encoding that is not known.",
    pycurl.E_SSL_CACERT_BADFILE: "The trusted certificates could not be read.",
    pycurl.E_SSL_CERTPROBLEM: _CLIENT_CERTIFICATE,
    pycurl.E_BAD_FUNCTION_ARGUMENT: _CLIENT_CERTIFICATE,  # what libcurl says of a key that it cannot read
    pycurl.E_UNSUPPORTED_PROTOCOL: "The receiver did not answer in HTTP.",
}


def sentence(evidence: Evidence, code: int, known: str, message: str) -> str:
    """What went wrong. `known` is a reason found on our side, which says more than a code; `message` is libcurl's."""
    if evidence.aborted:
        return "Stopped by us before it was sent." if not evidence.bytes_offered else "Stopped by us while in flight."
    if known:
        return known
    if code == pycurl.E_OPERATION_TIMEDOUT:
        if not evidence.sends:
            return f"No connection after {evidence.elapsed_ms} ms."
        if evidence.head_complete:
            return f"The response body was not complete after {evidence.elapsed_ms} ms."
        return f"No complete answer after {evidence.elapsed_ms} ms."
    if code in _SENTENCES:
        return _SENTENCES[code]
    reason = os.strerror(evidence.os_errno) if evidence.os_errno else _plain(message)
    if code == pycurl.E_COULDNT_CONNECT:
        return f"The connection could not be made: {reason}."
    if code == pycurl.E_PEER_FAILED_VERIFICATION:
        return f"The receiver's certificate was not accepted: {_plain(message)}."
    if code == pycurl.E_SSL_CONNECT_ERROR:
        return f"The TLS handshake failed: {_plain(message)}."
    if evidence.head_complete:
        return f"The response body could not be read: {reason}."
    return f"The connection broke: {reason}."


def _plain(message: str) -> str:
    """libcurl's text, which may quote the receiver: printable and bounded."""
    text = "".join(character if character.isprintable() else " " for character in message).strip().rstrip(".")
    return text[:_LONGEST] or "no reason given"
