"""The exceptions that Surefoot raises. Every message says what is wrong and what to do about it.

SurefootError
├── InputError (ValueError)               a question, solution or data row is invalid
├── OptionError (ValueError)              an option has an invalid value
├── LoadError                             a model cannot be found, read or trusted
│   ├── CheckpointError                   a checkpoint does not match its family
│   ├── MissingDependencyError (ImportError)
│   └── PluginError                       another package provides something that cannot be used
├── JobError                              a bulk job cannot start, continue or finish
├── CacheError                            the score cache cannot be opened, read or written
├── CalibrationError                      a calibration is invalid or belongs to another model
├── ServiceError                          a scoring service failed
│   └── UnreachableError                  the service did not answer in time
└── UnscoredError                         a trainer that cannot skip samples got one without a reward
"""

from __future__ import annotations


class SurefootError(Exception):
    """Base class of all exceptions that this package raises.

    >>> try:
    ...     options = surefoot.ReadOptions(split="words")
    ... except surefoot.SurefootError as error:
    ...     print(error)
    split='words' is not a rule. Choose one of: auto, steps, paragraphs, lines.
    """


class InputError(SurefootError, ValueError):
    """A question, a solution, a list of steps or a data row is invalid."""


class OptionError(SurefootError, ValueError):
    """An option has a value that is invalid or that this machine does not support."""


class LoadError(SurefootError):
    """A model cannot be found, read or trusted."""


class CheckpointError(LoadError):
    """The tensors, config or vocabulary of a checkpoint do not match its family."""


class MissingDependencyError(LoadError, ImportError):
    """An optional package that the call needs is not installed."""


class PluginError(LoadError):
    """Another package provides something that cannot be used, or whose name is taken."""


class JobError(SurefootError):
    """A bulk job cannot start, continue or finish. Finished units are kept."""


class CacheError(SurefootError):
    """The score cache cannot be opened, read or written."""


class CalibrationError(SurefootError):
    """A calibration cannot be read, or was fitted for another model or scale."""


class ServiceError(SurefootError):
    """A scoring service cannot be reached, rejected the request, or sent an invalid reply."""


class UnreachableError(ServiceError):
    """A service did not answer, or was too busy, until the time limit had passed."""


class UnscoredError(SurefootError):
    """A sample has no reward, and the trainer has no way to skip it."""
