"""The reasons for which a scrape fails, in one sentence each."""

import os
from ssl import SSLCertVerificationError, SSLError

from otel_zernel.errors import ZernelError
from otel_zernel.text import without_query


class ScrapeFailed(ZernelError):
    """A scrape that brought nothing. The message is a part of a sentence, for the user."""

    def __init__(self, message: str, reason: str) -> None:
        """`reason` is one of few words, for a counter."""
        super().__init__(message)
        self.reason = reason


def connection_failure(error: Exception, url: str) -> ScrapeFailed:
    """No answer, or one that is not HTTP."""
    cause: BaseException = error
    while deeper := cause.__cause__ or cause.__context__:
        cause = deeper
    if isinstance(cause, SSLCertVerificationError):
        text = f"the certificate is not trusted: {cause.verify_message}; set tls_config::ca_file or server_name"
        return ScrapeFailed(text, "tls")
    if isinstance(cause, SSLError):
        advice = "; the target expects plaintext: set scheme: http" if "WRONG_VERSION" in str(cause) else ""
        return ScrapeFailed(f"TLS failed: {cause.reason or cause}{advice}", "tls")
    if isinstance(cause, OSError) and cause.strerror:
        number = cause.errno or 0
        if number < 0:  # getaddrinfo's own numbers
            return ScrapeFailed(f"cannot resolve the host: {cause.strerror}", "connection")
        return ScrapeFailed(f"no connection: {os.strerror(number)}", "connection")
    text = without_query(str(error), url) or type(error).__name__
    return ScrapeFailed(f"no HTTP answer: {text}; if the target uses TLS, set scheme: https", "connection")


_ADVICE = {
    401: "; set authorization or basic_auth",
    403: "; set authorization or basic_auth",
    404: "; check metrics_path",
}


def status_failure(status: int, phrase: str) -> ScrapeFailed:
    """An answer other than 200."""
    return ScrapeFailed(f"the answer is {status} {phrase}".rstrip() + _ADVICE.get(status, ""), "status")
