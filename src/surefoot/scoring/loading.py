"""From the name of a model to a scorer: a local model, a service, a vLLM server, or an ensemble of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from surefoot.core.addresses import VLLM_PREFIX, is_service, is_vllm
from surefoot.core.options import Precision, Quantization
from surefoot.core.protocols import StepScorer
from surefoot.errors import OptionError
from surefoot.scoring.combining import Combine, MissingMember
from surefoot.scoring.load_call import LoadCall
from surefoot.scoring.load_options import DEFAULT_MODEL, VLLM_OPTIONS, CalibrationLike, LoadOptions

if TYPE_CHECKING:
    import torch

    from surefoot.core.generation import Generator
    from surefoot.critics.base import Critic
    from surefoot.families import Family
    from surefoot.scoring.score_cache import ScoreCache


def load(
    model: str | Path | Sequence[str | Path | StepScorer] = DEFAULT_MODEL,
    *,
    precision: Precision = "exact",
    quantize: Quantization | None = None,
    quantize_fallback: bool = False,
    quantize_cache: bool | str | Path = False,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
    attention: str = "auto",
    compile: bool = False,
    threads: int | Literal["auto"] = "auto",
    revision: str | None = None,
    family: str | Family | None = None,
    family_options: Mapping[str, Any] | None = None,
    base: str | Path | None = None,
    strict: bool = False,
    max_tokens: int | None = None,
    calibration: CalibrationLike | Sequence[CalibrationLike | None] | None = None,
    cache: str | Path | ScoreCache | None = None,
    name: str | None = None,
    tokenizer: str | Path | None = None,
    served_name: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
    patience: float | None = None,
    combine: Combine | None = None,
    missing: MissingMember | None = None,
    critic: str | Critic | None = None,
    critic_options: Mapping[str, Any] | None = None,
    generator: str | Path | Generator | None = None,
) -> StepScorer:
    """Loads a PRM once; call the scorer as often as needed.

    >>> scorer = surefoot.load()  # mini, the model inside the package
    >>> scorer = surefoot.load("Qwen/Qwen2.5-Math-PRM-7B", quantize="nf4")
    >>> scorer = surefoot.load("http://127.0.0.1:8000")  # a service: surefoot serve
    >>> scorer = surefoot.load("vllm+http://127.0.0.1:8001")  # a vLLM server with a pooling model

    >>> scorer = surefoot.load(["mini", "http://127.0.0.1:8000"], combine="mean")  # an ensemble
    >>> scorer = surefoot.load("GenPRM/GenPRM-7B", generator="http://127.0.0.1:8002")  # a generative PRM

    `model` is a folder, a hub id, `mini`, or the address of a service or a vLLM server, or a list of those and of
    scorers.

    Options for a model in this process: `precision` is "exact" (float32 on a CPU), "auto" (bfloat16 where the CPU
    multiplies faster in it) or "fast" (also 8-bit weights); other formats than float32 change scores slightly.
    `quantize` stores weights in 4 or 8 bits; with `quantize_fallback` the model is loaded unquantized, with a
    warning, where that is not possible. `quantize_cache` stores nf4 weights on disk, in the given folder or, if
    True, in the user's cache, so that a CPU quantizes a model only once. `dtype`, `device` and `attention` are
    chosen automatically. `compile` compiles the forward pass, which takes a minute and is rarely worth it on a CPU.
    `threads` is the number of CPU threads while scoring; "auto" is torch's number, or fewer while other work keeps
    the CPUs busy. torch's own setting is restored after every forward pass. The family is found by the model's name
    or its config.json; otherwise pass `family`, a name or an object. `family_options` change how the family prompts
    and reads. `base` is the base model of LoRA weights, if not the one that they name. With `strict`, tokenizer
    files that disagree with the family's prompt are an error instead of a warning. `max_tokens` lowers the longest
    prompt below the model's context. `calibration`, a file of `surefoot calibrate` or its content, is applied to
    every score; "mini" is that of the embedded model. `cache`, a file or a `ScoreCache`, stores scores so that they
    are computed only once. `name` is what results call the model, if not `model`.

    Options for a server: `served_name` chooses one of several served models; `api_key`, `timeout` and `patience` are
    those of `Client`. For vLLM, `tokenizer` is the folder or hub id with the model's config.json and tokenizer,
    if the server's own path is not readable here; `strict`, `max_tokens`, `calibration` and `cache` work as
    above.

    Options for a critic, a generative PRM or a chat model that writes an analysis before it judges: `critic` is a name
    such as "genprm" or "processbench"; it is known for published models. `generator` is where the model runs: the
    address of an OpenAI-compatible server or what else `load_generator` takes; without it, the model is loaded into
    this process. `"processbench@http://..."` names the critic and the model at once, also in a list.
    `critic_options` change the critic, for example `{"votes": 4}`. `tokenizer`, `quantize`,
    `calibration`, `cache`, `name` and the options for a server work as above.

    Options for a list: `combine` is "mean" (the default), "min", or "calibrated", the mean of members that all have a
    calibration. If a member gives no score for a step, the step is unscored; `missing="skip"` combines the other
    members, with a warning. `name` works as above, and a list of calibrations has one per model. Other options reach
    the members that can take them; one that describes a single model must have only one such member.

    A scorer can be pickled, for example in a function for `datasets.map`. The pickle holds this call and the model's
    fingerprint: the model is loaded once in each process that unpickles it.
    """
    options = LoadOptions(
        precision=precision,
        quantize=quantize,
        quantize_fallback=quantize_fallback,
        quantize_cache=quantize_cache,
        dtype=dtype,
        device=device,
        attention=attention,
        compile=compile,
        threads=threads,
        revision=revision,
        family=family,
        family_options=family_options,
        base=base,
        strict=strict,
        max_tokens=max_tokens,
        calibration=calibration,
        cache=cache,
        name=name,
    )
    server: dict[str, Any] = {"served_name": served_name, "api_key": api_key, "timeout": timeout, "patience": patience}
    server = {name: value for name, value in server.items() if value is not None}
    if isinstance(model, Sequence) and not isinstance(model, str | bytes):
        from surefoot.scoring.ensemble import Ensemble
        from surefoot.scoring.member_options import member_options

        chosen = {name: getattr(options, name) for name in options.changed("name")} | server
        others = {"tokenizer": tokenizer, "critic": critic, "critic_options": critic_options, "generator": generator}
        chosen |= {name: value for name, value in others.items() if value is not None}
        pairs = zip(model, member_options(model, chosen), strict=True)
        members = [load(each, **given) if isinstance(each, str | Path) else each for each, given in pairs]
        return Ensemble(members, combine or "mean", missing or "unscored", name)
    if combine is not None or missing is not None:
        raise OptionError(f"combine and missing are for a list of models, and the model is {model}.")
    given = {name: getattr(options, name) for name in options.changed()}
    model, critic = _own_critic(model, critic)
    if _is_critic(model, critic, generator):
        from surefoot.scoring.critic_loading import load_critic

        judge = load_critic(
            model,
            critic=critic,
            critic_options=critic_options,
            generator=generator,
            tokenizer=tokenizer,
            server=server,
            options=options,
        )
        how = {"critic": critic, "critic_options": critic_options, "generator": generator, "tokenizer": tokenizer}
        if isinstance(generator, str | Path | None) and isinstance(critic, str | None):
            given |= {name: value for name, value in (how | server).items() if value is not None and name != "api_key"}
            judge.load_call = LoadCall.of(load, model, given, api_key)
        return judge
    if critic_options is not None:
        raise OptionError(f"critic_options are for critics, and {model} is not known as one. Pass critic=...")
    if isinstance(model, str) and is_vllm(model):
        from surefoot.scoring.remote import load_vllm

        _reject(model, options.changed(*VLLM_OPTIONS))
        scorer = load_vllm(model.removeprefix(VLLM_PREFIX).rstrip("/"), options, tokenizer=tokenizer, **server)
        given |= server if tokenizer is None else server | {"tokenizer": tokenizer}
        given.pop("api_key", None)
        scorer.load_call = LoadCall.of(load, model, given, api_key)
        return scorer
    if isinstance(model, str) and is_service(model):
        from surefoot.client import Client

        _reject(model, [*options.changed(), *(["tokenizer"] if tokenizer is not None else [])])
        return Client(model, model=server.pop("served_name", None), **server)
    if server or tokenizer is not None:
        wrong = ", ".join([*server, *(["tokenizer"] if tokenizer is not None else [])])
        raise OptionError(f"{wrong}: only for a server (http://... or vllm+http://...), and the model is {model}.")
    from surefoot.scoring.local import load_local

    scorer = load_local(model, **vars(options))
    scorer.load_call = LoadCall.of(load, model, given)
    return scorer


def _reject(model: str, names: list[str]) -> None:
    if names:
        raise OptionError(f"{', '.join(names)}: not supported for {model}. Leave it out, or start the server with it.")


def _own_critic(model: str | Path, critic: str | Critic | None) -> tuple[str | Path, str | Critic | None]:
    """The model and the critic, which may be written before the model: CRITIC@MODEL."""
    from surefoot.critics.registry import split_critic

    named, bare = split_critic(model)
    if named is not None and critic not in (None, named):
        shown = critic if isinstance(critic, str) else getattr(critic, "name", critic)
        raise OptionError(f"{model} names the critic {named!r}, and critic={shown!r} another one. Pass one of them.")
    return bare, named or critic


def _is_critic(model: str | Path, critic: Any, generator: Any) -> bool:
    """Whether a critic is asked for, or the model is known as one."""
    if critic is not None or generator is not None:
        return True
    if not isinstance(model, str | Path):
        return False
    from surefoot.critics.registry import critic_of

    return critic_of(model) is not None
