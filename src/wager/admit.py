"""What a request must satisfy before it is queued, so that none fails in the middle of a step that others share."""

from __future__ import annotations

from collections.abc import Sequence as ListLike

from wager.cache import BlockPool
from wager.commit import terminal_ids
from wager.errors import CapacityError, OptionError, PromptError
from wager.sampling import check_allowed, check_ids
from wager.tree import depths
from wager.types import Draft, Sampling


def check_request(
    tokens: ListLike[int],
    sampling: Sampling,
    n_ids: int,
    *,
    eos_ids: frozenset[int],
    context: int,
    cache: BlockPool,
) -> None:
    """Raises PromptError or CapacityError where a prompt can never run, OptionError for options that cannot hold."""
    check_ids(sampling, n_ids)
    check_allowed(sampling, terminal_ids(sampling, eos_ids), n_ids)
    if sampling.constraint is not None and not any(0 <= token < n_ids for token in eos_ids):
        raise OptionError(f"`constraint` is {sampling.constraint!r}, but no token ends this model's text: leave it out")
    if not tokens:
        raise PromptError("the prompt is empty: give at least one token")
    _check_tokens(tokens, len(tokens), n_ids, context)
    longest = min(len(tokens) + sampling.max_tokens, context) + 1
    if cache.blocks_for(longest) > cache.n_blocks:
        raise CapacityError(
            f"prompt and answer may need {longest} tokens of K/V but there is room for "
            f"{cache.n_blocks * cache.block_size}: raise kv_cache_gb or lower max_tokens"
        )


def check_tree(n_tokens: int, tree: Draft, n_ids: int, *, context: int) -> None:
    """Raises PromptError where a tree of given tokens cannot be read after so many others."""
    if len(tree):
        _check_tokens(tree.tokens.tolist(), n_tokens + max(depths(tree)), n_ids, context)


def _check_tokens(tokens: ListLike[int], n_tokens: int, n_ids: int, context: int) -> None:
    if min(tokens) < 0 or max(tokens) >= n_ids:
        raise PromptError(f"the prompt holds ids outside [0, {n_ids}): encode it with this model's tokenizer")
    if n_tokens >= context:
        raise PromptError(f"the prompt has {n_tokens} tokens but the context holds {context}: shorten it")
