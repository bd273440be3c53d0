"""Hooks for mkdocs: pages that live outside docs/, the quickstart notebook as a page, and links between all of them.

Files are written for GitHub, where a relative link leads to a file of the repository. On the site it leads to the page
made of that file, or to GitHub if there is none.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

import docstring_code  # noqa: F401  # doctest_fences imports it later, when this folder is not on the path any more
from notebook_page import notebook_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/surefoot-prm/surefoot/blob/main/"
NOTEBOOK = "docs/quickstart.ipynb"
SOURCES = {
    "index.md": "README.md",
    "quickstart.md": NOTEBOOK,
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
    "reference/mini.md": "src/surefoot/families/mini/checkpoint/README.md",
}
"""Pages of the site whose files are elsewhere, by their place on the site."""
HOME_FRONT_MATTER = "---\nhide: [navigation]\n---\n\n"
FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
TABLE_ROW, CODE = re.compile(r"^\|.*\|$", re.MULTILINE), re.compile(r"`[^`]+`")
INLINE_CODE, OPTION = re.compile(r"(?<=<code>)[^<\n]+(?=</code>)"), re.compile(r"(?<![^\s\[(])--?\w[\w-]*")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s]+)(?=\))|(?<=^\[)([^\]]+\]: )(?![a-z]+:)(\S+)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of `SOURCES`."""
    from mkdocs.structure.files import File

    for uri, source in SOURCES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source == NOTEBOOK:
            text = notebook_page(json.loads(text))
        front = HOME_FRONT_MATTER if uri == "index.md" else ""
        files.append(File.generated(config, uri, content=front + without_front_matter(text)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links between files lead to pages, and show bars in the code of tables without their backslashes."""
    plain = TABLE_ROW.sub(lambda row: CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), markdown)
    return with_site_links(plain, page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep browsers from breaking the line inside an option."""
    return with_whole_options(html)


def with_whole_options(html: str) -> str:
    """Mark the options in inline code, which has no tags and no line breaks. Browsers break lines after hyphens."""
    mark = r'<span class="option">\g<0></span>'
    return INLINE_CODE.sub(lambda code: OPTION.sub(mark, code[0]), html)


def with_site_links(markdown: str, uri: str) -> str:
    """Rewrite the relative links of a page, except in code blocks."""
    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(lambda link: _rewritten(link, uri), markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, LINK.sub(lambda link: _rewritten(link, uri), markdown[at:])])


def _rewritten(link: re.Match[str], uri: str) -> str:
    return site_link(link[1], uri) if link[1] else link[2] + site_link(link[3], uri)


def site_link(target: str, uri: str) -> str:
    """Return where a relative link in the file of a page leads on the site."""
    path, mark, anchor = target.partition("#")
    source = SOURCES.get(uri, f"docs/{uri}")
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    pages = {file: page for page, file in SOURCES.items()}
    if wanted == source:  # a page that links to its own file offers it as a download
        found = wanted.removeprefix("docs/")
    elif wanted in pages:
        found = pages[wanted]
    elif wanted.startswith("docs/") and (ROOT / wanted).is_file() and not wanted.startswith("docs/scripts/"):
        found = wanted.removeprefix("docs/")
    else:
        return REPOSITORY + wanted + mark + anchor
    return posixpath.relpath(found, posixpath.dirname(uri) or ".") + mark + anchor


def without_front_matter(text: str) -> str:
    """Remove the YAML block at the start of a model card."""
    return re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
