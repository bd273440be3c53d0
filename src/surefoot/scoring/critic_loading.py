"""Load critics: a generative PRM or a chat model, in this process or on a server, with the critic's prompt."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot.core.addresses import is_service
from surefoot.core.event_loop import run_async
from surefoot.core.generation import Generator
from surefoot.critics.base import Critic
from surefoot.critics.registry import critic_of, find_critic
from surefoot.errors import CheckpointError, OptionError
from surefoot.generate.chat_prompt import PLACE, ChatPrompt
from surefoot.generate.loading import load_generator
from surefoot.generate.local import LocalGenerator
from surefoot.generate.prompt_encoder import PromptEncoder, find_tokenizer_folder
from surefoot.scoring.critic_scorer import CriticScorer
from surefoot.scoring.load_options import DEFAULT_MODEL, LoadOptions
from surefoot.scoring.local import as_calibration
from surefoot.scoring.score_cache import as_score_cache

logger = logging.getLogger("surefoot")

USED = ("quantize", "dtype", "device", "revision", "calibration", "cache", "name")
"""The options of `load` that a critic understands."""
LOCAL = ("quantize", "dtype", "device", "revision")
"""Those of a model in this process."""
OTHER_PROMPT = (
    "This generator puts its own instructions around every question, and a critic needs its prompt exactly. Load it "
    'with system="" and without `prompt`, or pass its address or folder instead of the object.'
)
MINI = (
    "mini is a PRM: it scores steps and writes no text, so it cannot be the critic {critic!r}. If only some models are "
    "critics, name the critic with the model, such as {critic}@http://127.0.0.1:8002."
)
NO_TOKENS = (
    "The critic {critic!r} sends prompts as token ids, and this server takes none. Use a vLLM, SGLang or llama.cpp "
    "server, or load the model into this process."
)
TEMPLATE_DIFFERS = (
    "The chat template of {tokenizer} differs from the one that {critic} was published with. The published one is used."
)


def load_critic(
    model: str | Path,
    *,
    critic: str | Critic | None,
    critic_options: Mapping[str, Any] | None,
    generator: Any,
    tokenizer: str | Path | None,
    server: Mapping[str, Any],
    options: LoadOptions,
) -> CriticScorer:
    """Load a critic. For the meaning of each option see `load`."""
    if unused := options.changed(*USED):
        raise OptionError(f"{', '.join(unused)}: not supported for a critic.")
    known = critic_of(model)
    name = known if known is not None and critic in (None, known.name) else critic
    if name is None:
        raise OptionError(f"{model} is not known as a critic. Pass critic=..., such as 'processbench' or 'yes-no'.")
    chosen = find_critic(name, critic_options)
    if model == DEFAULT_MODEL and generator is None:
        raise OptionError(MINI.format(critic=chosen.name))
    if is_service(model) and generator is None:
        generator, model = model, ""
    source = _tokenizer_source(model, tokenizer, generator)
    made = _load_generator(chosen, model if generator is None else generator, source, server, options)
    owned = made is not generator
    run_async(_check(made, owned))
    found = getattr(made, "tokenizer", None)
    if chosen.takes_tokens and found is None:
        raise OptionError(
            f"The critic {chosen.name!r} sends prompts as token ids, so it needs the model's tokenizer. Pass its "
            "folder or hub id: tokenizer=..."
        )
    if chosen.takes_tokens and not made.continues:
        raise OptionError(NO_TOKENS.format(critic=chosen.name))
    scorer = CriticScorer(
        chosen,
        made,
        name=options.name or (str(model) or made.name),
        tokenizer=found,
        warnings=_template_warnings(chosen, source or model),
        calibration=as_calibration(options.calibration),
        cache=as_score_cache(options.cache),
        owns_generator=owned,
    )
    if scorer._calibration is not None:
        scorer._calibration.check(scorer.name, scorer.fingerprint)
    for warning in (*scorer._warnings, *getattr(made, "warnings", ())):
        logger.warning("%s", warning)
    return scorer


def _tokenizer_source(model: str | Path, tokenizer: str | Path | None, generator: Any) -> str | Path | None:
    """Where the tokenizer is: as given, or with the model if a server computes."""
    if tokenizer is not None or generator is None:
        return tokenizer
    return model or None


def _load_generator(
    critic: Critic, what: Any, tokenizer: str | Path | None, server: Mapping[str, Any], options: LoadOptions
) -> Generator:
    names = {"served_name": "model"}
    given = {names.get(name, name): value for name, value in server.items()}
    local = {name: getattr(options, name) for name in options.changed() if name in LOCAL}
    if isinstance(what, str | Path) and not is_service(what) and not str(what).endswith((".jsonl", ".jsonl.gz")):
        if given:
            raise OptionError(f"{', '.join(server)}: for servers only, and the critic {what} runs in this process.")
        made: Generator = LocalGenerator(what, system=critic.system or "", tokenizer=tokenizer, **local)
    elif local:
        raise OptionError(f"{', '.join(local)}: for a critic in this process, not for one on a server.")
    else:
        made = load_generator(what, system=critic.system or "", tokenizer=tokenizer, **given)
    prompt = getattr(made, "prompt", None)
    if isinstance(prompt, ChatPrompt) and (prompt.system or "", prompt.template) != (critic.system or "", PLACE):
        raise OptionError(OTHER_PROMPT)
    return made


async def _check(generator: Generator, owned: bool) -> None:
    try:
        await generator.check()
    finally:
        if owned:
            await generator.close()


def _template_warnings(critic: Critic, source: str | Path) -> tuple[str, ...]:
    """Say so if the tokenizer's template renders a message differently from the published one."""
    published = critic.published_template()
    if published is None or not source:
        return ()
    prompt = ChatPrompt("Any." if "{system}" in published else "", PLACE)
    try:
        parts = PromptEncoder.from_folder(find_tokenizer_folder(source), prompt).parts.parts
    except CheckpointError:  # it takes no system message, for example
        parts = ()
    rendered = "".join(part if isinstance(part, str) else f"{{{part.role}}}" for part in parts)
    if rendered == published or (rendered.startswith(published) and not critic.adds_generation_prompt):
        return ()
    return (TEMPLATE_DIFFERS.format(tokenizer=source, critic=critic.name),)
