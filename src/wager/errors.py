"""What can go wrong, said in one sentence with the value and the remedy.

A ``WagerError`` is the user's to mend (exit code 2 on the command line); anything else that escapes is our bug.
"""

from __future__ import annotations


class WagerError(Exception):
    """Base of every error a user can act on. The message names the value and says what to do next."""


class OptionError(WagerError, ValueError):
    """An option outside its range, or one that cannot be honoured together with another."""


class ModelError(WagerError):
    """A model that is missing, damaged, unsupported, or lacks a part (tokenizer, catalog entry, checksum)."""


class PromptError(WagerError, ValueError):
    """A prompt that cannot be run: empty, or longer than the context."""


class VocabularyError(WagerError, ValueError):
    """Two models whose tokens do not mean the same."""


class CapacityError(WagerError):
    """Not enough K/V memory, disk or queue for what was asked."""


class IdentityError(WagerError):
    """``--require-identical`` was asked for, and this machine or profile cannot promise it."""


class ConstraintError(WagerError):
    """A constraint that leaves no token to go on with, or takes too much to follow: it ends one sequence, no other."""
