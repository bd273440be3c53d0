"""Take a chat template apart: what it writes itself, and where it puts the texts of the messages.

The template is rendered with unguessable placeholders instead of texts, and the result is split at them.
Invariant: a template never sees a question or a system message, so no text can change what the template writes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from surefoot.errors import CheckpointError, InputError
from surefoot.generate.chat_prompt import ChatPrompt
from surefoot.tokenization.chat_template import render_template
from surefoot.tokenization.settings import Message, TokenizerSettings


@dataclass(frozen=True)
class Slot:
    """Where a template writes the text of a message, and on which sides it strips white space from it."""

    role: str
    strip_left: bool = False
    strip_right: bool = False

    def fill(self, text: str) -> str:
        """Return the text as the template would have written it."""
        text = text.lstrip() if self.strip_left else text
        return text.rstrip() if self.strip_right else text


@dataclass(frozen=True)
class TemplateParts:
    """What a template writes for one conversation: its own texts, and slots for those of the messages."""

    parts: tuple[str | Slot, ...]

    @property
    def opening(self) -> str:
        """What the template writes before the first text."""
        return self.parts[0] if self.parts and isinstance(self.parts[0], str) else ""


@dataclass(frozen=True)
class Probe:
    """Conversations with placeholders, to be rendered by whoever has the template."""

    placeholders: Mapping[str, str]
    """A placeholder per role."""

    @classmethod
    def for_prompt(cls, prompt: ChatPrompt) -> Probe:
        """Choose placeholders for the messages of a prompt."""
        roles = [message["role"] for message in prompt.messages("")]
        # Letters only: no tokenizer, template or JSON encoder has a reason to change them.
        names = {
            role: "q" + secrets.token_hex(16).translate(str.maketrans("0123456789", "ghijklmnop")) for role in roles
        }
        return cls(names)

    @property
    def plain(self) -> list[Message]:
        """The conversation with nothing but placeholders as texts."""
        return [{"role": role, "content": name} for role, name in self.placeholders.items()]

    @property
    def padded(self) -> list[Message]:
        """The same with blanks around them, which tells whether the template strips texts."""
        return [{"role": role, "content": f" {name} "} for role, name in self.placeholders.items()]

    def split(self, plain: str) -> TemplateParts:
        """Return the parts of a template, given what it wrote for the plain conversation."""
        for role, name in self.placeholders.items():
            if name not in plain:
                advice = 'Pass system="" and put the instructions into `prompt`.' if role == "system" else ""
                raise CheckpointError(f"The chat template leaves out the {role} message. {advice}".rstrip())
        return TemplateParts(_split(plain, {name: Slot(role) for role, name in self.placeholders.items()}))

    def read(self, plain: str, padded: str) -> TemplateParts:
        """Return the parts of a template with how it strips texts, given what it wrote for both conversations."""
        self.split(plain)
        sides = list(product((False, True), repeat=2))
        for chosen in product(sides, repeat=len(self.placeholders)):
            slots = {
                name: Slot(role, *strip) for (role, name), strip in zip(self.placeholders.items(), chosen, strict=True)
            }
            expected = plain
            for name, slot in slots.items():
                expected = expected.replace(name, slot.fill(f" {name} "))
            if expected == padded:
                return TemplateParts(_split(plain, slots))
        raise CheckpointError(
            "The chat template changes the texts of messages in a way that is not supported. Use another template, or "
            "another server."
        )


def _split(text: str, slots: Mapping[str, Slot]) -> tuple[str | Slot, ...]:
    """Split a rendered conversation at its placeholders."""
    parts: list[str | Slot] = [text]
    for name, slot in slots.items():
        split: list[str | Slot] = []
        for part in parts:
            if isinstance(part, Slot):
                split.append(part)
                continue
            first, *others = part.split(name)
            split.append(first)
            for other in others:
                split += [slot, other]
        parts = split
    return tuple(part for part in parts if part != "")


def local_parts(settings: TokenizerSettings, prompt: ChatPrompt) -> TemplateParts:
    """Take apart the chat template in a checkpoint's tokenizer files, with the generation prompt at its end."""
    if settings.chat_template is None:
        raise CheckpointError(
            "The tokenizer has no chat template, so questions cannot be asked as its makers intended. Pass the folder "
            "or hub id of an instruction-tuned model, or add its chat_template.jinja."
        )
    probe = Probe.for_prompt(prompt)

    def render(messages: Sequence[Message]) -> str:
        variables = {
            "messages": list(messages),
            "bos_token": settings.bos_token or "",
            "eos_token": settings.eos_token or "",
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
        }
        try:
            return render_template(settings.chat_template or "", variables)
        except ValueError as error:
            advice = ' If it does not know system messages, pass system="".' if "system" in probe.placeholders else ""
            raise CheckpointError(f"The chat template fails: {error}.{advice}") from error

    return probe.read(render(probe.plain), render(probe.padded))


def fill_slots(pieces: Sequence[int | str | Slot], texts: Mapping[str, str]) -> Iterator[int | str]:
    """The special tokens of a template and the texts between them, with the texts of the messages.

    >>> list(fill_slots([1, "User: ", Slot("user"), 2, "\\n"], {"user": "Why?"}))
    [1, 'User: Why?', 2, '\\n']
    """
    run = ""
    for piece in pieces:
        if isinstance(piece, int):
            if run:
                yield run
            yield piece
            run = ""
        else:
            run += piece if isinstance(piece, str) else piece.fill(texts[piece.role])
    if run:
        yield run


def plain_markers(pieces: Sequence[int | str | Slot]) -> tuple[str, ...]:
    """What separates turns in a template that separates them with plain text; nothing if it has special tokens for it.

    `pieces` are the special tokens of a template, its texts between them, and its slots. Old templates write `[/INST]`
    or `Assistant:` in ordinary tokens. With those, only the text of a message can be checked.

    >>> plain_markers([1, "[INST] ", Slot("user"), " [/INST]"])
    ('[INST]', '[/INST]')
    """
    last = max(at for at, piece in enumerate(pieces) if isinstance(piece, Slot))
    if any(isinstance(piece, int) for piece in pieces[last + 1 :]):
        return ()
    lines = (line.strip() for piece in pieces if isinstance(piece, str) for line in piece.split("\n"))
    return tuple(dict.fromkeys(line for line in lines if line))


def refuse_markers(markers: Sequence[str], *texts: str) -> None:
    """Raise if a text spells what separates turns."""
    for marker in markers:
        if any(marker in text for text in texts):
            raise InputError(
                f"The text contains {marker!r}, which separates turns in this model's chat template. Remove it, or use "
                "a model whose template has special tokens for that."
            )
