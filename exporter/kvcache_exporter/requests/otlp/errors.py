"""Errors in the body of an export."""


class MalformedError(Exception):
    """The body is not an export."""


class TooManyError(Exception):
    """The body holds more items than are accepted in one request."""
