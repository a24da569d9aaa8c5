"""What an output may be: the seam behind ``Sampling.constraint``. Grammars are one implementation (grammar.py)."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]


class Guide(Protocol):
    """A constraint at work on one sequence: pure functions of the output, committed tokens and then a path of a draft.

    ``allowed`` (V,): ids that may come next, nothing but ends of text where the output is complete; read only.
    ``fits``: how many tokens of ``path`` may follow one by one. ``forced``: tokens that follow whatever the model
    wants, each the only one allowed; they may be fewer than there are.

    ``allowed`` raises ConstraintError for an output that is no beginning of an allowed one; after an end of text only
    another one may come.
    """

    def allowed(self, output: ListLike[int]) -> Mask: ...
    def fits(self, output: ListLike[int], path: ListLike[int]) -> int: ...
    def forced(self, output: ListLike[int]) -> list[int]: ...


class Constraint(Protocol):
    """What a request wants of its output. ``guide`` makes it work on one sequence, in the engine's ``vocabulary``
    (``grammar.Vocabulary``; None where the engine was given none).

    ``guide`` raises OptionError for what cannot be honoured.
    """

    def guide(self, vocabulary: Any) -> Guide: ...
