"""The sockets of `single`, which never block and keep a `Trace`.

Rules, each with a test:
- Every wait is here, for what is left of one deadline. No timeout of a library bounds wall time.
- Every write is one step under a lock, together with its bookkeeping and a look at the clock. So what is known of a
  request is exact at any moment and in any thread, and nothing is written after the deadline or after a stop.
- What has come is read even after the deadline: whoever stood still past it must not drop the answer.
- The connected peer is judged once more at the socket.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import time
from typing import Any

from deliveries.transport.base import Refused, connect_share, refusal
from deliveries.transport.single_trace import Stopped, Trace
from deliveries.transport.tls_context import context_for

_RECORD = 16 * 1024  # bytes of one TLS record
_BROKEN = select.POLLERR | select.POLLHUP


class PlainSocket(socket.socket):
    """Does not block, whatever it is told. `trace` is set as soon as there is one."""

    trace: Trace

    def settimeout(self, value: float | None) -> None:
        super().settimeout(0.0)

    def close(self) -> None:
        with self.trace.lock:  # `stop` must not meet its number when it is someone else's
            super().close()

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        trace = self.trace
        while True:
            trace.may_read()
            try:
                count = super().recv_into(*args, **kwargs)
            except BlockingIOError:
                trace.wait(self, select.POLLIN)
                continue
            if not count and trace.stopped:
                raise Stopped  # the end may be of our making
            return count

    def write_some(self, data: memoryview) -> int | None:
        """Write what the kernel takes; None when it takes nothing because the peer has answered already."""
        trace = self.trace
        while True:
            with trace.lock:
                trace.may_go_on()
                try:
                    count = self.send(data)
                except BlockingIOError:
                    pass
                else:
                    trace.offered += count
                    trace.written += count
                    return count
            if not trace.wait(self, select.POLLIN | select.POLLOUT) & (select.POLLOUT | _BROKEN):
                return None


class TlsSocket(ssl.SSLSocket):
    """The same with TLS."""

    trace: Trace | None = None
    _held = 0  # bytes of a record that the library has, and has not written
    _early = b""  # what came while we were writing

    def settimeout(self, value: float | None) -> None:
        super().settimeout(0.0)

    def close(self) -> None:
        if self.trace is None:
            super().close()
            return
        with self.trace.lock:
            super().close()

    def recv(self, *args: Any, **kwargs: Any) -> bytes:
        try:
            return super().recv(*args, **kwargs)
        except OSError:
            if self._sslobj is None:  # type: ignore[attr-defined]
                self.close()  # it is being made around a connection that was reset meanwhile: nobody else will close it
            raise

    def take(self, trace: Trace) -> None:
        """It is of this request from now on."""
        with trace.lock:
            self.trace = trace
            trace.uses(self)

    def shake_hands(self, trace: Trace, until: float) -> None:
        while True:
            trace.may_go_on()
            try:
                self.do_handshake()
            except ssl.SSLWantReadError:
                trace.wait(self, select.POLLIN, until)
            except ssl.SSLWantWriteError:
                trace.wait(self, select.POLLOUT, until)
            else:
                return

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        trace = self.trace
        assert trace is not None
        if self._early:
            count = min(len(self._early), len(buffer))
            buffer[:count] = self._early[:count]
            self._early = self._early[count:]
            return count
        while True:
            trace.may_read()
            try:
                count = super().recv_into(buffer, nbytes, flags)
            except ssl.SSLWantReadError:
                trace.wait(self, select.POLLIN)
                continue
            except ssl.SSLWantWriteError:
                trace.wait(self, select.POLLOUT)
                continue
            except ssl.SSLEOFError:
                # An end that TLS does not vouch for. It may have cut a body that says nothing of its length.
                if trace.head.status is not None and not trace.stopped:
                    raise
                count = 0
            if not count and trace.stopped:
                raise Stopped
            return count

    def write_some(self, data: memoryview) -> int | None:
        """Write one record; None when the peer has answered already. Its bytes count as offered from the moment that
        the library has them."""
        trace = self.trace
        assert trace is not None
        record = data[:_RECORD]
        while True:
            with trace.lock:
                trace.may_go_on()
                trace.offered += len(record) - self._held
                self._held = len(record)
                try:
                    count = self.send(record)
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    pass
                else:
                    self._held = 0
                    trace.offered -= len(record) - count
                    trace.written += count
                    return count
            events = trace.wait(self, select.POLLIN | select.POLLOUT)
            if not events & (select.POLLOUT | _BROKEN) and self._answered():
                return None

    def _answered(self) -> bool:
        """Read what has come. It may be no answer but a session ticket."""
        try:
            self._early = self.recv(_RECORD)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        return True


def connected(trace: Trace) -> socket.socket:
    """A connection, with TLS where the URL says so, to the first of the addresses that can be reached and answers.

    `Refused` when it may not be used, OSError when there is none.
    """
    trace.may_go_on()
    context = None if trace.target.plain else context_for(trace.ca_file, trace.tls, TlsSocket)
    failure: OSError | None = None
    for tried, address in enumerate(trace.addresses):
        now = time.monotonic()
        if failure is not None and trace.deadline <= now:
            break  # an address that had no time is not to be blamed
        until = now + connect_share(trace.connect_s, trace.deadline - now, len(trace.addresses) - tried)
        try:
            made = _reached(trace, address, until)
            return made if context is None else _secured(trace, made, context, until)
        except Stopped:
            raise
        except OSError as error:
            if trace.peer is not None and not isinstance(error, TimeoutError):
                raise  # it was reached, and TLS was not agreed
            trace.unreachable.append(address)
            failure = error.with_traceback(None)  # whose frames would keep the request, and its key, for long
    raise failure or OSError("there is no address to connect to")


def _reached(trace: Trace, address: str, until: float) -> socket.socket:
    """A socket that is connected to `address` by `until`, and whose peer the policy of this moment allows."""
    trace.peer = None
    try:
        made = PlainSocket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise Refused(f"No socket could be made: {error.strerror}.") from None
    made.trace = trace
    try:
        made.settimeout(0.0)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with trace.lock:
            trace.may_go_on()
            code = made.connect_ex((address, trace.target.port))
            trace.uses(made)
        if code == errno.EINPROGRESS:
            trace.wait(made, select.POLLOUT, until)
            code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        trace.may_go_on()
        if code:
            raise OSError(code, os.strerror(code))
        host, port = made.getpeername()[:2]
        if not trace.policy.allows(host, port, plain=trace.target.plain):
            raise Refused(refusal(host, port))
    except BaseException:
        made.close()
        raise
    trace.peer = f"{host} {port}"
    return made


def _secured(trace: Trace, plain: socket.socket, context: ssl.SSLContext, until: float) -> TlsSocket:
    """TLS over a connection, agreed by `until`. The handshake checks the certificate and the name."""
    try:
        made = context.wrap_socket(
            plain, server_hostname=trace.target.host, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
    except BaseException:
        plain.close()
        raise
    assert isinstance(made, TlsSocket)
    try:
        made.take(trace)
        made.shake_hands(trace, until)
    except BaseException:
        made.close()
        raise
    return made
