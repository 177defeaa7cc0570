"""Make the notebooks: run each NN_name.py in a fresh kernel and write NN_name.ipynb, with small outputs.

python notebooks/build.py [NN …] [--run | --check]
"""

import argparse
import math
import os
import re
import sys
import time
from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path
from queue import Empty
from typing import Any

import jupytext
import nbformat
import numpy as np
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from PIL import Image
from traitlets import Type

HERE = Path(__file__).parent
MOST_BYTES = 300 * 1024
CELL_SECONDS = 300
COLOURS = 64


def main() -> int:
    """Build, run or compare the chosen notebooks; returns how many of them fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NN", help="the beginnings of their names; without any, all")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--run", action="store_true", help="run them, but write nothing")
    only.add_argument(
        "--check", action="store_true", help="run nothing; check that each .ipynb has the cells of its .py"
    )
    args = parser.parse_args()
    do = same if args.check else runs if args.run else build
    sources = sorted(HERE.glob("[0-9][0-9]_*.py"))
    for name in args.names:
        if not any(source.name.startswith(name) for source in sources):
            parser.error(f"no notebook's name begins with {name!r}")
    chosen = [source for source in sources if source.name.startswith(tuple(args.names or [""]))]
    return sum(not do(source) for source in chosen)


def cells(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """A notebook's cells, without outputs."""
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def same(source: Path) -> bool:
    """Whether the notebook has the cells of its source."""
    made = source.with_suffix(".ipynb")
    good = made.exists() and cells(nbformat.read(made, as_version=4)) == cells(jupytext.read(source))
    if not good:
        print(f"{made.name} does not have the cells of {source.name}: python notebooks/build.py {source.name[:2]}")
    return good


def runs(source: Path) -> bool:
    """Whether a notebook runs to its end; says which cells print other than in the .ipynb."""
    start_s = time.monotonic()
    try:
        notebook = executed(source)
    except (CellExecutionError, CellTimeoutError) as error:
        print(f"{source.name}: {error}", file=sys.stderr)
        return False
    print(f"{source.name}: runs, in {time.monotonic() - start_s:.0f} s", flush=True)
    made = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    for number, (now, before) in enumerate(zip(notebook.cells, made.cells, strict=False)):
        if printed(now) != printed(before) and 'world="mpi"' not in now.source:  # real ranks measure
            print(f"{source.stem}.ipynb, cell {number}: now prints\n{printed(now)}instead of\n{printed(before)}")
    return True


def printed(cell: nbformat.NotebookNode) -> str:
    """What a cell prints, without the places of this machine."""
    return "".join(without_places(output.get("text", "")) for output in cell.get("outputs", []))


def executed(source: Path) -> nbformat.NotebookNode:
    """The notebook of this source with its outputs, run in a fresh kernel.

    Raises:
        CellExecutionError, CellTimeoutError: a cell failed, or took too long.
    """
    notebook = jupytext.read(source)
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # for small products, threads cost more than they save
        os.environ.setdefault(name, "1")
    place = {"metadata": {"path": HERE}}
    NotebookClient(
        notebook, kernel_manager_class=_Manager, timeout=CELL_SECONDS, resources=place, coalesce_streams=True
    ).execute()
    return notebook


class _Channel(AsyncZMQSocketChannel):
    """A channel that looks for messages every second: now and then a socket does not tell of one that has come."""

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:
        deadline_s = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return await super().get_msg(max(0.0, min(1.0, deadline_s - time.monotonic())))
            except Empty:
                if time.monotonic() >= deadline_s:
                    raise


class _Client(AsyncKernelClient):
    shell_channel_class = Type(_Channel)
    iopub_channel_class = Type(_Channel)
    control_channel_class = Type(_Channel)


class _Manager(AsyncKernelManager):
    client_factory = Type(_Client)


def build(source: Path) -> bool:
    """Run a notebook and write it; returns whether it is small enough."""
    notebook = executed(source)
    notebook.metadata.language_info = {"name": "python"}
    notebook.metadata.pop("widgets", None)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        for output in cell.get("outputs", []):
            tidy(output)
    made = source.with_suffix(".ipynb")
    text = nbformat.writes(notebook) + "\n"
    made.write_text(text, encoding="utf-8")
    num_bytes = len(text.encode())
    print(f"{made.name}: {num_bytes / 1024:.0f} KiB")
    if num_bytes > MOST_BYTES:
        print(f"{made.name} has more than {MOST_BYTES // 1024} KiB: use fewer or smaller pictures", file=sys.stderr)
    return num_bytes <= MOST_BYTES


def tidy(output: nbformat.NotebookNode) -> None:
    """Make pictures small, and text the same on every machine."""
    if "text" in output:
        output.text = without_places(output.text)
    if "traceback" in output:
        output.traceback = [without_places(line) for line in output.traceback]
    data = output.get("data", {})
    if "application/vnd.jupyter.widget-view+json" in data:  # its model ends with the kernel
        del data["application/vnd.jupyter.widget-view+json"]
        data["text/plain"] = "(a slider: open this notebook in Jupyter and run the cell)"
    if "image/png" in data:
        data["image/png"] = small(data["image/png"])
        data.pop("text/plain", None)


def small(png: str) -> str:
    """The picture with few colours."""
    file = BytesIO()
    reduced(Image.open(BytesIO(b64decode(png))).convert("RGB"), COLOURS).save(file, "png", optimize=True)
    return b64encode(file.getvalue()).decode()


def reduced(image: Image.Image, colours: int) -> Image.Image:
    """The picture in its most frequent colours: areas and legend keep theirs, the edges of letters get rougher."""
    found: list[tuple[int, ...]] = []
    for _, colour in sorted(image.getcolors(image.width * image.height), reverse=True):
        if len(found) < colours and all(max(map(abs, np.subtract(colour, other))) >= 8 for other in found):
            found.append(colour)  # Pillow merges colours that are nearer to each other
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in found for part in colour])
    return image.quantize(palette=palette, dither=Image.Dither.NONE)


def without_places(text: str) -> str:
    """The text without the folders and process numbers of this machine."""
    text = text.replace(f"{HERE.parent}/", "").replace(f"{sys.prefix}/", "")
    text = re.sub(r"/\S*/ipykernel_\d+/\d+\.py", "<cell>", text)
    return re.sub(r"\(process \d+\)", "(process …)", text)


if __name__ == "__main__":
    sys.exit(main())
