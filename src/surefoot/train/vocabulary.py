"""Cut a vocabulary down to the tokens that some texts need: most weights of a small model are embeddings it never uses.

Invariant: any text can still be encoded. Kept tokens are used as before, removed ones are encoded as their parts, and
the bytes and letters that all tokens consist of are always kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from surefoot.errors import OptionError
from surefoot.families import PromptTokenizer

SEEN = 2
"""A token is kept because of the texts only if they contain it at least this often."""


def cut_vocabulary(layout: dict[str, Any], texts: Iterable[str], common: int) -> tuple[dict[str, Any], list[int]]:
    """Return a tokenizer.json with fewer tokens, and the old ids of the kept tokens in their new order.

    It keeps the first `common` tokens (BPE learns frequent ones first), the tokens that the texts use, and the parts of
    both. The special tokens of the base are removed: no family that can be trained uses them.
    """
    model = layout["model"]
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        raise OptionError("Only byte-level BPE vocabularies can be cut. Omit `vocabulary` for this base.")
    vocabulary: dict[str, int] = model["vocab"]
    spelled = {number: token for token, number in vocabulary.items()}
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    parts = {left + right: (left, right) for left, right in reversed(merges)}
    used = Counter(number for ids in PromptTokenizer(layout).encode(*texts) for number in ids)
    special = {token["content"] for token in layout["added_tokens"]}
    ordinary = sorted((number, token) for token, number in vocabulary.items() if token not in special)
    wanted = [token for number, token in ordinary if token not in parts or used[number] >= SEEN]
    wanted += [token for _, token in ordinary[:common]]
    kept: set[str] = set()
    while wanted:
        token = wanted.pop()
        if token not in kept:
            kept.add(token)
            wanted += parts.get(token, ())
    old_ids = sorted(vocabulary[token] for token in kept)
    smaller = {spelled[number]: place for place, number in enumerate(old_ids)}
    remaining = [
        list(merge) for merge in merges if merge[0] in kept and merge[1] in kept and merge[0] + merge[1] in kept
    ]
    return layout | {"added_tokens": [], "model": model | {"vocab": smaller, "merges": remaining}}, old_ids
