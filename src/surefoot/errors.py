"""Every error that Surefoot raises on purpose.

The rule: a mistake is named, the message says what to do about it, and one `except SurefootError` catches them all.
"""

from __future__ import annotations


class SurefootError(Exception):
    """The root of all errors raised on purpose by this package."""


class InputError(SurefootError, ValueError):
    """A question, a solution or a list of steps that cannot be read as such."""


class OptionError(SurefootError, ValueError):
    """An option whose value is not one of those offered, or that does not fit this machine."""


class LoadError(SurefootError):
    """A model that cannot be found, read or trusted."""


class CheckpointError(LoadError):
    """A checkpoint whose tensors, config or vocabulary are not those of its family."""


class MissingDependencyError(LoadError, ImportError):
    """An optional package that the request needs is not installed."""


class CacheError(SurefootError):
    """A store of scores that cannot be opened, read or written."""


class CalibrationError(SurefootError):
    """A calibration that cannot be read, or that was made for another model or scale."""


class ServiceError(SurefootError):
    """A scoring service that cannot be reached, refused the work, or gave an answer that cannot be read."""


class UnreachableError(ServiceError):
    """A service that did not answer, or put everybody off, until there was no patience left."""


class UnscoredError(SurefootError):
    """A sample without a reward, in a trainer that has no way to pass over it."""
