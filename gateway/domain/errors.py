"""The error tree: who can do something about it.

SupaclawError
├── OwnerMustAct     the operator has to change something; the text says what
│   └── ConfigError
└── TryAgainLater    the world is not ready (database down, lease lost); nothing is lost by trying again
    ├── DatabaseDown
    └── RunLost
"""


class SupaclawError(Exception):
    """Base of every error that is ours; the text is one line."""


class OwnerMustAct(SupaclawError):
    """Only the operator can mend this; the text says how."""


class ConfigError(OwnerMustAct):
    """The configuration is wrong; the text names the key."""


class TryAgainLater(SupaclawError):
    """Trying again may work; nothing was acknowledged that is not stored."""


class DatabaseDown(TryAgainLater):
    """Postgres cannot be reached."""


class RunLost(TryAgainLater):
    """The task was cancelled or taken over since this run claimed it: stop, and write nothing more."""
