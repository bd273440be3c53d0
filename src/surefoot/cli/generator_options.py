"""Options of commands with a generator: `surefoot search` and `surefoot label`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from surefoot.cli.messages import rename_arguments
from surefoot.cli.options import finite, read_key
from surefoot.core.generation import Sampling
from surefoot.core.options import Quantization
from surefoot.errors import OptionError

if TYPE_CHECKING:
    from surefoot.core.generation import Generator

GENERATOR = "Generator"

OF_THE_GENERATOR = {
    "model": "served_model",
    "tokenizer": "generator_tokenizer",
    "quantize": "generator_quantize",
    "max_batch": "generator_batch",
    "api_key": "generator_key",
}
"""What the arguments of `load_generator` are called here."""


@dataclass(frozen=True, kw_only=True)
class GeneratorOptions:
    """Which model writes the solutions."""

    generator: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="Address of an OpenAI-compatible server, folder or hub id of a language model, or recorded rollouts.",
            rich_help_panel=GENERATOR,
        ),
    ]
    served_model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which model of the server, if it has several.", rich_help_panel=GENERATOR),
    ] = None
    dialect: Annotated[
        Literal["vllm", "sglang", "llamacpp", "openai"] | None,
        typer.Option(
            metavar="NAME",
            help="Which kind of server: vllm, sglang, llamacpp or openai.",
            show_default="asks the server",
            rich_help_panel=GENERATOR,
        ),
    ] = None
    generator_tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE", help="Folder or hub id with the tokenizer of the served model.", rich_help_panel=GENERATOR
        ),
    ] = None
    generator_quantize: Annotated[
        Quantization | None,
        typer.Option(
            metavar="FORMAT",
            help="For a model in this process: int8 (faster on CPUs) or nf4 (less memory).",
            rich_help_panel=GENERATOR,
        ),
    ] = None
    generator_batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="For a model in this process: sequences at a time.",
            show_default="32",
            rich_help_panel=GENERATOR,
        ),
    ] = None
    generator_key: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File with the key for the server.",
            show_default="the variable OPENAI_API_KEY",
            rich_help_panel=GENERATOR,
        ),
    ] = None
    system: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="System message; an empty one sends none.",
            show_default="asks for steps and a boxed answer",
            rich_help_panel=GENERATOR,
        ),
    ] = None
    prompt: Annotated[
        str, typer.Option(metavar="TEXT", help="User message, with {question} in it.", rich_help_panel=GENERATOR)
    ] = "{question}"
    temperature: Annotated[
        float,
        typer.Option(
            metavar="T", help="Of the samples; 0 is greedy decoding.", callback=finite, rich_help_panel=GENERATOR
        ),
    ] = 0.8
    top_p: Annotated[
        float,
        typer.Option(
            metavar="P", help="Sample from this share of the probability.", callback=finite, rich_help_panel=GENERATOR
        ),
    ] = 1.0
    top_k: Annotated[
        int,
        typer.Option(
            min=0, metavar="K", help="Sample from the K most probable tokens; 0: all.", rich_help_panel=GENERATOR
        ),
    ] = 0

    def load(self) -> Generator:
        """Connect to the server, or load the model."""
        from surefoot.generate.loading import load_generator

        given: dict[str, Any] = {"model": self.served_model, "dialect": self.dialect}
        given |= {"tokenizer": self.generator_tokenizer, "system": self.system}
        given |= {"quantize": self.generator_quantize, "max_batch": self.generator_batch}
        if self.generator_key is not None:
            given["api_key"] = read_key(self.generator_key)
        given = {name: value for name, value in given.items() if value is not None}
        try:
            return load_generator(self.generator, prompt=self.prompt, **given)
        except OptionError as error:
            # The command has flags with the same names for the PRM.
            raise OptionError(rename_arguments(str(error), OF_THE_GENERATOR)) from error

    def sampling(self) -> Sampling:
        """How continuations are sampled."""
        return Sampling(self.temperature, self.top_p, self.top_k)
