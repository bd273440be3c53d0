"""Find texts that spell special tokens, for servers whose tokenizer would take them for such."""

from __future__ import annotations

import re

from surefoot.errors import InputError

_NAMES = (
    r"<\|[^\s|<>][^|<>\n]{0,80}\|>",  # Qwen, Llama 3, Phi and most others
    r"<｜[^｜<>\n]{1,80}｜>",  # DeepSeek
    r"</?(?:s|unk|pad|bos|eos|mask|cls|sep)>",
    r"\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK|IMG|CLS|SEP|PAD|UNK|MASK)\]",
    r"<</?SYS>>",
    r"<(?:start|end)_of_(?:turn|image|role|text)>",
    r"</?tool_(?:call|response)s?>",
    r"<(?:unused|extra_id_|reserved_?)\d+>",
    r"<0x[0-9A-Fa-f]{2}>",
)
SPECIAL = re.compile("|".join(f"(?:{name})" for name in _NAMES))


def refuse_special(*texts: str) -> None:
    """Raise if a text spells something that looks like a special token.

    >>> refuse_special("Is 3 <| 4 |> 5?")
    """
    for text in texts:
        if found := SPECIAL.search(text):
            raise InputError(
                f"The text contains {found.group()!r}, which the server would read as a special token. Pass the folder "
                "or hub id of the model's tokenizer (tokenizer=...): then it is sent as plain text."
            )
