"""Check the built documentation site: it loads nothing from other hosts, and every local link leads to a file."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

LOADS = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*?\bsrc=["']?([^"'\s>]+)|<link\b[^>]*?\bhref=["']?([^"'\s>]+)"""
)
LINKS = re.compile(r"""<a\b[^>]*?\bhref=["']?([^"'\s>]+)""")
REMOTE = re.compile(r"(?:https?:)?//")
STYLE = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


def problems(site: Path) -> list[str]:
    """Return one line per problem of the site."""
    found = []
    for page in sorted(site.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(site).as_posix()
        loaded = [first or second for first, second in LOADS.findall(text)]
        remote = [target for target in loaded if REMOTE.match(target)] + STYLE.findall(text)
        found += [f"{name} loads {target}" for target in remote]
        local = {urldefrag(target).url for target in [*loaded, *LINKS.findall(text)]}
        for target in sorted(local - {"", "."}):
            path = (site if target.startswith("/") else page.parent) / unquote(target).lstrip("/")
            if not re.match(r"[a-z]+:|//", target) and name != "404.html" and not path.exists():
                found.append(f"{name} links to {target}, which does not exist")
    for sheet in site.rglob("*.css"):
        found += [f"{sheet.name} loads {target}" for target in STYLE.findall(sheet.read_text(encoding="utf-8"))]
    return found


def main(folder: str) -> int:
    """Print the problems of a built site."""
    site = Path(folder)
    pages = len(list(site.rglob("*.html")))
    found = problems(site) if pages else [f"{folder} has no pages"]
    print("\n".join(found) or f"{folder}: {pages} pages, ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
