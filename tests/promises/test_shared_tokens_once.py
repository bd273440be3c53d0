"""Promise 5: N solutions of one question cost the tokens of their trie, not of their sum."""

from __future__ import annotations

import torch

import surefoot


class TokenCounter:
    """Counts the tokens that really go through the backbone."""

    def __init__(self, scorer: surefoot.Scorer) -> None:
        self.tokens = 0
        self._hook = scorer.engine.backbone.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, module: torch.nn.Module, args: object, kwargs: dict[str, torch.Tensor]) -> None:
        self.tokens += kwargs["inputs_embeds"].shape[1]

    def stop(self) -> int:
        self._hook.remove()
        return self.tokens


def test_the_backbone_reads_the_trie(scorer: surefoot.Scorer) -> None:
    question = "Tom has 3 bags of 4 apples and eats 2. How many are left?"
    first = ["3 * 4 = 12 apples in all.", "3 + 4 = 7 apples in all."]
    last = ["12 - 2 = 10.", "He has 10 left.", "So 10."]
    items = [(question, [a, b]) for a in first for b in last] * 3
    prompts = [scorer.family.render(scorer.tokenizer, *item) for item in items]
    trie = {prompt.ids[: end + 1] for prompt in prompts for end in range(prompt.reads[-1] + 1)}
    counter = TokenCounter(scorer)
    results = scorer.score_many(items)
    assert counter.stop() == len(trie)
    assert sum(result.tokens for result in results) > 6 * len(trie)


def test_many_packs_share_across_their_borders(scorer: surefoot.Scorer) -> None:
    items = [("A question of some length, which all solutions share.", [f"Step {n}."]) for n in range(50)]
    prompts = [scorer.family.render(scorer.tokenizer, *item) for item in items]
    trie = {prompt.ids[: end + 1] for prompt in prompts for end in range(prompt.reads[-1] + 1)}
    before, scorer.engine.budget = scorer.engine.budget, 40
    counter = TokenCounter(scorer)
    scorer.score_many(items)
    scorer.engine.budget = before
    assert counter.stop() == len(trie)
