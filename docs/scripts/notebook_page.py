"""Turn a Jupyter notebook with stored outputs into a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

OUTPUT = " { .text .notebook-text }"
"""The language of printed outputs, with the class by which they look different from code."""


def notebook_page(notebook: Mapping[str, Any]) -> str:
    """Return the cells of a notebook as Markdown, with their outputs. HTML outputs stay HTML."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts += [fenced(source, "python"), *map(_output, cell["outputs"])]
    return "\n\n".join(parts) + "\n"


def fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any in the text. `language` may be attributes in braces."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _output(output: Mapping[str, Any]) -> str:
    if output["output_type"] == "stream":
        return fenced("".join(output["text"]), OUTPUT)
    if output["output_type"] == "error":
        raise ValueError(f"The notebook has an error: {output['ename']}: {output['evalue']}. Execute it again.")
    data = output["data"]
    if "text/html" in data:
        # Without blank lines, which would end the HTML block.
        return "\n".join(['<div class="notebook-output">', *_lines(data["text/html"]), "</div>"])
    if "image/png" in data:
        return f"![output](data:image/png;base64,{''.join(data['image/png']).strip()})"
    return fenced("".join(data["text/plain"]), OUTPUT)


def _lines(html: list[str] | str) -> Iterator[str]:
    return (line for line in "".join(html).splitlines() if line.strip())
