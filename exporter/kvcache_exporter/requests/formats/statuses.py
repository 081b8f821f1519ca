"""Statuses in logs: whether a request failed, and by which of the catalogue's reasons."""

from functools import lru_cache

from kvcache_exporter.requests.formats.values import label

_SHORT = 40
_CLIENT_CLOSED = 499  # nginx's code for a client that went away
_FINE = frozenset({"", "ok", "success", "succeeded", "completed", "complete", "finished", "done", "none"})
_REASONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("rate_limited", ("ratelimit", "toomanyrequests", "429", "insufficientquota", "throttl")),
    ("aborted", ("abort", "cancel", "disconnect", "clientclosed", "499")),
    ("client_error", ("badrequest", "invalid", "notfound", "authentication", "permission", "contextwindow",
                      "contentpolicy", "unprocessable", "toolarge", "toolong", "contextlength",
                      "unauthorized")),
    ("server_error", ("servererror", "internal", "unavailable", "overloaded", "timeout", "apierror",
                      "connection", "badgateway", "engine")),
)  # fmt: skip


def failure_of_status(status: object) -> str:
    """The reason a request failed by its HTTP code or status word; "" if it did not."""
    if isinstance(status, str) and not status.strip().isdecimal():
        return _failure_of_word(status)
    if isinstance(status, bool) or not isinstance(status, int | float | str):
        return "failed" if status is False else ""
    code = int(float(status)) if len(str(status)) < 20 and str(status) not in {"inf", "nan"} else 0
    return failure_of_code(code)


def failure_of_code(code: int) -> str:
    """The reason by HTTP status code; "" for codes below 400."""
    if code < 400:
        return ""
    if code == 429:
        return "rate_limited"
    if code == _CLIENT_CLOSED:
        return "aborted"
    return "client_error" if code < 500 else "server_error"


def failure_of_text(*texts: object) -> str:
    """The reason by an error's code, class or message, whichever is recognised first; else `failed`."""
    for text in texts:
        bare = _bare(text)
        if len(bare) == 3 and bare.isdecimal() and failure_of_code(int(bare)):
            return failure_of_code(int(bare))
        for reason, words in _REASONS:
            if any(word in bare for word in words):
                return reason
    return "failed"


def failure_of_error(error: object) -> str:
    """The reason by an API's error object, or by any other JSON in its place."""
    if isinstance(error, dict):
        return failure_of_text(error.get("type"), error.get("code"), error.get("message"))
    return failure_of_text(error)


def _failure_of_word(status: str) -> str:
    word = _bare(status)
    if word in _FINE:
        return ""
    if word.startswith(("fail", "error", "exception", "abort", "cancel", "timeout", "reject")):
        return failure_of_text(word)
    return ""


def status_word(status: object) -> str:
    """`ok`, or the log's word for an unusual end of a finished request (`incomplete`)."""
    if type(status) is str and _bare(status) not in _FINE and not status.strip().isdecimal():
        return label(status).lower()
    return "ok"


def ending(status: object) -> tuple[str, str]:
    """`failure_of_status` and `status_word`; cached for short words."""
    if status is None or status == 200:
        return "", "ok"
    if type(status) is str and len(status) <= _SHORT:
        return _ending(status)
    return failure_of_status(status), status_word(status)


@lru_cache(maxsize=256)
def _ending(status: str) -> tuple[str, str]:
    return failure_of_status(status), status_word(status)


def _bare(text: object) -> str:
    """Lower case without separators, so that RateLimitError equals rate_limit_error."""
    return "".join(filter(str.isalnum, label(text).lower()))
