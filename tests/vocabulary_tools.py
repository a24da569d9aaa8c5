"""Made-up tokenizers over any pieces, and draft models that know the target's law in another vocabulary."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wager.drafters.drawing import Drawing
from wager.drafters.model import ModelDrafter
from wager.drafters.tli import TokenLevel
from wager.drafters.uag import StringLevel
from wager.models.toy import ToyModel

BYTES = [b"<0x%02X>" % byte for byte in range(256)]


class Pieces:
    """``text.Text`` in what drafters ask of it: the longest piece first; what no piece has is left out.

    ``mark``: how pieces write a space. ``prefix``: a space goes in front of a text, and is taken away again. ``bos``:
    its id, which is special, as are ``special``.
    """

    def __init__(self, pieces, *, special=(), bos=None, mark=b" ", prefix=False, eos=(), name="made-up"):
        self.vocab = list(pieces)
        self.special_ids = frozenset(special) | ({bos} if bos is not None else frozenset())
        self.eos_ids = frozenset(eos)
        self.path = Path(name)
        self._bos, self._mark, self._prefix = bos, mark, prefix
        said = {self._said_by(t): t for t in reversed(range(len(self.vocab))) if self._said_by(t)}
        self._said = sorted(said.items(), key=lambda pair: -len(pair[0]))

    @property
    def vocab_size(self):
        return len(self.vocab)

    def token_bytes(self, token):
        if not 0 <= token < len(self.vocab) or token in self.special_ids:
            return b""
        piece = self.vocab[token]
        return bytes([int(piece[3:5], 16)]) if piece in BYTES else piece

    def _said_by(self, token):
        return self.token_bytes(token).replace(self._mark, b" ")

    def encode(self, text, add_special=True):
        data = (" " * (self._prefix and bool(text)) + text).encode()
        ids = [self._bos] if add_special and self._bos is not None else []
        while data:
            piece, token = next((pair for pair in self._said if data.startswith(pair[0])), (data[:1], None))
            ids += [] if token is None else [token]
            data = data[len(piece) :]
        return ids

    def decode(self, ids):
        text = b"".join(map(self._said_by, ids)).decode(errors="replace")
        return text.removeprefix(" ") if self._prefix else text


class Knowing(ToyModel):
    """A toy whose law is that of ``target`` after the same text, as far as it has the tokens; ``own`` (V,) are its ids
    of the target's (-1: none). Its context is told by its last two tokens.
    """

    def __init__(self, target, own, vocab_size, **options):
        super().__init__(vocab_size, **{"n_blocks": 400, **options})
        self._target, self._own = target, np.asarray(own)

    def law(self, context):
        back = {int(o): t for t, o in enumerate(self._own) if o >= 0}
        theirs = self._target.law([back.get(int(token), 0) for token in context])
        row = np.full(self.vocab_size, -20.0, np.float32)
        known = np.flatnonzero(self._own >= 0)
        row[self._own[known]] = theirs[known]
        return row


def token_level(model, own, target, *, drawing=None, eos_ids=frozenset()):
    return TokenLevel(
        model, own=own, target=target, n_valid_ids=target.vocab_size, eos_ids=eos_ids, drawing=drawing or Drawing()
    )


def string_level(model, own, target, *, drawing=None):
    inner = ModelDrafter(
        model,
        n_valid_ids=own.vocab_size,
        eos_ids=own.eos_ids,
        drawing=drawing or Drawing("deterministic"),
        name="uag",
    )
    return StringLevel(inner, own=own, target=target, n_valid_ids=target.vocab_size)
