"""`surefoot check`: loads a model and compares its scores with the published ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.cli.exit_codes import DONE, INCOMPLETE
from surefoot.cli.groups import Command, with_groups
from surefoot.cli.options import OWN_MODEL_HELP, ModelOptions, Name, Verbose, complete_model, examples
from surefoot.core.addresses import is_server
from surefoot.errors import OptionError

if TYPE_CHECKING:
    from surefoot.families import TokenizerCheck
    from surefoot.scoring.check import Comparison

app = typer.Typer(add_completion=False)


@app.command(
    cls=Command,
    epilog=examples(
        "surefoot check mini",
        "surefoot check Qwen/Qwen2.5-Math-PRM-7B --quantize nf4",
        "surefoot check ./my-copy --as Qwen/Qwen2.5-Math-PRM-7B",
    ),
)
@with_groups
def check(
    *,
    model: Annotated[str, typer.Argument(metavar="MODEL", help=OWN_MODEL_HELP, autocompletion=complete_model)],
    name: Name = None,
    model_options: ModelOptions,
    verbose: Verbose = False,
) -> int:
    """Load a model, verify every tensor, and compare its scores with the published ones."""
    from surefoot.scoring.check import check
    from surefoot.scoring.scorer import Scorer

    scorer = model_options.load(model)
    if not isinstance(scorer, Scorer):
        raise OptionError("surefoot check needs the model itself: a folder, a hub id or a vllm+http:// address.")
    report = check(scorer, name)
    tensors = "weights on a vLLM server, not checked" if is_server(model) else "every expected tensor is there"
    trained = scorer.pipeline.trained_tokens
    limit = f"prompts of up to {scorer.max_tokens} tokens"
    if trained is not None and trained < scorer.max_tokens:
        limit += f", trained on up to {trained}"
    print(f"{scorer.name}: {tensors}; family {scorer.family.name}, {limit}.")
    _print_tokenizer(scorer.pipeline.tokenizer_check)
    for comparison in report.comparisons:
        _print_comparison(comparison)
    return DONE if report.passed else INCOMPLETE


def _print_tokenizer(checked: TokenizerCheck) -> None:
    """Reports what the checkpoint's tokenizer files say."""
    if not checked.files:
        print("No tokenizer settings in the checkpoint; the prompt is the family's own.")
        return
    taken = ", ".join(f"{name}={value!r}" for name, value in checked.taken.items())
    verdict = "DISAGREE with the family's prompt" if checked.mismatches else "agree with the family's prompt"
    print(f"{', '.join(checked.files)}: {verdict}.{f' Taken from them: {taken}.' if taken else ''}")
    for mismatch in checked.mismatches:
        print(mismatch)


def _print_comparison(comparison: Comparison) -> None:
    example, golden = comparison.example, comparison.golden
    published = golden.scores if golden else (None,) * len(example.steps)
    print(f"{'step':>4}  {'score':>8}  {'published':>9}")
    for number, (step, wanted) in enumerate(zip(example.steps, published, strict=True), start=1):
        score = step.status if step.score is None else format(step.score, ".4f")
        print(f"{number:>4}  {score:>8}  {'-' if wanted is None else format(wanted, '.4f'):>9}")
    if golden is None:
        print("No published scores are known for this model name; it was loaded and run, not compared.")
    else:
        verdict = "agree" if comparison.passed else "DO NOT AGREE"
        print(f"The scores {verdict} within {golden.tolerance} ({golden.source}).")
