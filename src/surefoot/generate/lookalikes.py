"""Find texts that spell special tokens, for servers whose tokenizer would take them for such.

Invariant: a list of names is a second check. Only the tokens of the served template are certain to be found.
"""

from __future__ import annotations

import re

from surefoot.errors import InputError

THINKING = ("<think>", "</think>")
"""The tags around thinking. A model writes them, so an answer may begin with them; a question may not contain them."""
_NAMES = (
    r"<\|[^\s|<>][^|<>\n]{0,80}\|>",  # Qwen, Llama 3, Phi and most others
    r"<｜[^｜<>\n]{1,80}｜>",  # DeepSeek
    r"<\|(?:turn|channel|think|image|audio|video|tool(?:_call|_response)?)>",  # Gemma 4, which closes them reversed
    r"<(?:turn|channel|think|image|audio|video|tool(?:_call|_response)?)\|>",
    r"</?(?:s|unk|pad|bos|eos|mask|cls|sep|sop|eop)>",
    r"</?(?:UNK|PAD|BOS|EOS|MASK|CLS|SEP)(?:_TOKEN)?>",
    r"\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK|IMG|CLS|SEP|PAD|UNK|MASK)\]",
    r"\[(?:[gs]?MASK|BOS|EOS|EOT|UNUSED_TOKEN_\d+)\]",  # GLM, Kimi, InternLM
    r"\[\|[a-z_]{3,40}\|\]",  # EXAONE
    r"<seed:[^\s<>]{1,40}>",
    r"\]~!?b[\[\]]|\[e~\[",  # MiniMax
    r"<</?SYS>>",
    r"<(?:start|end)_of_(?:turn|image|role|text)>",
    r"</?tool_(?:call|response)s?>",
    r"<(?:unused|extra_id_|reserved_?|SPECIAL_)\d+>",
    r"<0x[0-9A-Fa-f]{2}>",
)
BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""How vocabularies of the SentencePiece kind name bytes. These are text."""
SPACES = " \n\t▁ĠĊ"
"""White space, also as names of tokens spell it."""
SPECIAL = re.compile("|".join(f"(?:{name})" for name in _NAMES))
WITH_THINKING = re.compile("|".join((SPECIAL.pattern, *THINKING)))
ADVICE = (
    "Pass the folder or hub id of the model's tokenizer (tokenizer=...): then servers that take token ids get it as "
    "plain text."
)


def refuse_special(*texts: str, pattern: re.Pattern[str] = SPECIAL) -> None:
    """Raise if a text spells something that looks like a special token.

    >>> refuse_special("Is 3 <| 4 |> 5?")
    """
    for text in texts:
        if found := pattern.search(text):
            raise structure_error(found.group())


def structure_error(name: str) -> InputError:
    """The error for a text that would become structure."""
    return InputError(f"The text contains {name!r}, which the server would read as a special token. {ADVICE}")


def is_structural(piece: str) -> bool:
    """Whether a token that a template writes has the form of a special token: a name between punctuation.

    >>> [is_structural(piece) for piece in ("<|im_end|>", "]~b]", "assistant", ".\\n", "Q:")]
    [True, True, False, False, False]
    """
    name = piece.strip(SPACES)
    if len(name) < 3 or name[0].isalnum() or name[-1].isalnum() or BYTE.fullmatch(name):
        return False
    return any(map(str.isalnum, name)) and len(name.split()) == 1
