"""The one exception type for mistakes that a user can mend."""


class UserError(ValueError):
    """A mistake in what the user gave; its message is one sentence: what was given, what is possible, what to do.

    The commands print it without a traceback, once for the whole job. Everything else is a fault and shows its
    traceback.
    """
