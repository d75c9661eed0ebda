"""What is wrong with a server's certificate, or its TLS at all, in words and with what to do about it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Final

from fingerpost.frozen import frozen

OWN_AUTHORITY_HINT: Final = (
    "if the certificate is of your own authority, set SSL_CERT_FILE to a file with that authority's "
    "certificate"
)
CLOCK_HINT: Final = (
    "renew the certificate on the server; if it is in order, correct the clock of this machine"
)
OTHER_HOST_HINT: Final = (
    "use a host that its certificate names in its url, or renew the certificate for this one"
)
NO_TLS_HINT: Final = "if the server has no TLS, use http:// in its url"

_UNTRUSTED: Final = "its certificate comes from an authority that is not trusted here"
_HOST_MISMATCH_CODES: Final = "its certificate is for another host"
# By the numbers OpenSSL gives them (X509_V_ERR_*), which Python has no names for.
_CERTIFICATES: Final = {
    2: (_UNTRUSTED, OWN_AUTHORITY_HINT),
    9: ("its certificate is not valid yet", CLOCK_HINT),
    10: ("its certificate has expired", CLOCK_HINT),
    18: ("its certificate is self-signed, and not trusted here", OWN_AUTHORITY_HINT),
    19: (_UNTRUSTED, OWN_AUTHORITY_HINT),
    20: (_UNTRUSTED, OWN_AUTHORITY_HINT),
    21: (_UNTRUSTED, OWN_AUTHORITY_HINT),
    62: (_HOST_MISMATCH_CODES, OTHER_HOST_HINT),
    64: (_HOST_MISMATCH_CODES, OTHER_HOST_HINT),
}
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})


@frozen
class TlsFault:
    """Why no connection with TLS was made."""

    reason: str
    hint: str


def find_tls_fault(error: BaseException) -> TlsFault | None:
    """The fault of TLS behind an error of whichever client; None where it was something else."""
    for cause in _iterate_causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason, hint = _CERTIFICATES.get(
                cause.verify_code,
                (f"its certificate is not accepted: {cause.verify_message}", OWN_AUTHORITY_HINT),
            )
            return TlsFault(reason=reason, hint=hint)
        # Waiting for more is how TLS is read, and stands behind every time-out.
        if isinstance(cause, ssl.SSLError) and not isinstance(
            cause, ssl.SSLWantReadError | ssl.SSLWantWriteError
        ):
            if cause.reason in _NOT_TLS:
                return TlsFault(reason="what it answers is not TLS", hint=NO_TLS_HINT)
            said = (cause.reason or "no reason given").replace("_", " ").lower()
            reason = f"TLS could not be agreed on ({said})"
            return TlsFault(reason=reason, hint="the server's own log says more")
    return None


def _iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
