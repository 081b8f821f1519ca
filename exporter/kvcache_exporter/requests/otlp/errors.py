"""What is wrong with the body of an export."""


class MalformedError(Exception):
    """It is no export."""


class TooManyError(Exception):
    """It holds more than is read at once."""
