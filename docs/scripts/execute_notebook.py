"""Execute the quickstart notebook and store its outputs in the file.

    python docs/scripts/execute_notebook.py

`tests/test_notebook.py` executes it too, and fails if the stored numbers are no longer those.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

FILE = Path(__file__).parents[1] / "quickstart.ipynb"
TIMEOUT = 1200
"""Seconds per cell: on a busy machine, importing torch alone may take minutes."""


def executed(folder: str | Path) -> nbformat.NotebookNode:
    """Run all cells in a folder, without a network, and return the notebook with fresh outputs."""
    notebook = nbformat.read(FILE, as_version=4)
    os.environ["HF_HUB_OFFLINE"] = "1"  # for the kernel, which is a child process
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which differ from run to run
        if cell.cell_type == "code":  # warnings of other packages, with paths of this machine
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    return notebook


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        nbformat.write(executed(folder), FILE)
