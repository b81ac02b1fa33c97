"""TLS of an endpoint's own: a private CA, a client certificate and its key, on a libcurl handle that has no other."""

from __future__ import annotations

import pycurl

from deliveries.transport.base import Refused, Tls


def apply(tls: Tls, curl: pycurl.Curl) -> None:
    """Set the options of `tls`, which is not PUBLIC; `Refused` when libcurl does not take them.

    Nothing is unset: a handle that has once had these options is for no other Tls.
    """
    try:
        # A session that was agreed with one certificate would be resumed with another, unseen by the receiver.
        curl.setopt(pycurl.SSL_SESSIONID_CACHE, 0)
        if tls.ca_certificates:
            curl.setopt(pycurl.CAINFO_BLOB, tls.ca_certificates)  # used instead of CAINFO
        if tls.client_certificate:
            curl.setopt(pycurl.SSLCERT_BLOB, tls.client_certificate)
            curl.setopt(pycurl.SSLKEY_BLOB, tls.client_key)
            curl.setopt(pycurl.KEYPASSWD, "")  # without one, OpenSSL would ask for it on the terminal and wait
    except pycurl.error:
        raise Refused("The endpoint's certificates cannot be used.") from None
