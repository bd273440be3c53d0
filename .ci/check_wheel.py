"""Check a built wheel: it holds every file of the package and nothing else, and its long description links work."""

from __future__ import annotations

import re
import sys
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

SOURCE = Path(__file__).parent.parent / "src"
MAX_BYTES = 100_000_000  # the default limit per file on PyPI


def problems(wheel: Path) -> list[str]:
    """Return one line per problem of this wheel."""
    found = []
    if wheel.stat().st_size > MAX_BYTES:
        found.append(f"{wheel.stat().st_size} bytes are more than PyPI's limit of {MAX_BYTES}")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        packed = {name for name in names if ".dist-info/" not in name}
        metadata = message_from_string(
            archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
        )
    paths = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    source = {path.relative_to(SOURCE).as_posix() for path in paths if ".egg-info" not in str(path)}
    found += [f"the wheel lacks {name}" for name in sorted(source - packed)]
    found += [f"the wheel holds {name}, which is not part of the package" for name in sorted(packed - source)]
    targets = re.findall(r"\]\(([^)]+)\)", str(metadata.get_payload()))
    if not targets:
        found.append("the long description has no links, so it is not the README")
    found += [f"relative link in the long description: {target}" for target in targets if ":" not in target]
    return found


def main(folder: str) -> int:
    """Print the problems of the only wheel in a folder."""
    (wheel,) = Path(folder).glob("*.whl")
    found = problems(wheel)
    print("\n".join(f"{wheel.name}: {problem}" for problem in found) or f"{wheel.name}: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
