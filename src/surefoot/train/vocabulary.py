"""A vocabulary cut down to what the texts at hand need: most of a small model's weights are rows that it never reads.

The rule: text is split into tokens as before wherever the tokens were kept, and into their parts where they were not;
nothing becomes unreadable, because the bytes and letters that everything is made of always stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from surefoot.errors import OptionError
from surefoot.families import PromptTokenizer

SEEN = 2
"""A token that occurs less often in the texts is not kept for their sake."""


def cut_vocabulary(layout: dict[str, Any], texts: Iterable[str], common: int) -> tuple[dict[str, Any], list[int]]:
    """A tokenizer.json with fewer tokens, and the old ids of those it kept, in their new order.

    Kept are the first `common` tokens (BPE learns the frequent ones first), those that the texts use, and what these
    are made of. The base's own special tokens go: no family trained here reads them.
    """
    model = layout["model"]
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        raise OptionError("Only byte-level BPE vocabularies can be cut. Leave --vocabulary out for this base.")
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
