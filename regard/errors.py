"""Errors for people: what is wrong, where, what is allowed. The command line prints them without a traceback."""


class UserError(ValueError):
    """Something the user can mend: a wrong key, a bad file, a run that is in use."""


class PeerError(UserError):
    """Another process of this run has failed or gone away."""


class DataError(UserError):
    """A data file is not what it should be; the message names the file and the line."""


class DamagedError(UserError):
    """A directory we wrote is not as we wrote it; the message names the file."""


class RecipeError(UserError):
    """The recipe is wrong; the message names the key and the choices."""
