"""The one form in which a notebook is committed: re-running unchanged code leaves an empty diff."""

import copy
import hashlib

import nbformat

NOTEBOOK_METADATA = ("html_meta", "mystnb", "orphan")
CELL_METADATA = ("tags", "mystnb", "slideshow")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
PNG = "image/png"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "file_extension": ".py", "pygments_lexer": "ipython3"}


def normalize(notebook):
    """Return ``notebook`` without anything that a re-run, another editor or another Python would change.

    Raises ValueError if one cell shows several images with different alt texts: the page can hold only one.
    """
    notebook = copy.deepcopy(notebook)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    kept = {key: notebook.metadata[key] for key in NOTEBOOK_METADATA if key in notebook.metadata}
    notebook.metadata = {**kept, "kernelspec": KERNEL, "language_info": LANGUAGE}
    for cell in notebook.cells:
        cell.metadata = {key: cell.metadata[key] for key in CELL_METADATA if cell.metadata.get(key)}
        cell.source = cell.source.strip("\n")
    notebook.cells = [cell for cell in notebook.cells if cell.source]
    _number_code_cells(notebook.cells)
    _name_cells(notebook.cells)
    return notebook


def is_stable(notebook):
    """Whether ``notebook`` already is in the stable form."""
    return nbformat.writes(notebook) == nbformat.writes(normalize(notebook))


def _number_code_cells(cells):
    code = [cell for cell in cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        ran = cell.execution_count is not None
        cell.execution_count = number if ran else None
        cell.outputs = _merge_streams([_output(output, cell.execution_count) for output in cell.outputs])
        _copy_alt(cell, number)


def _name_cells(cells):
    seen = {}
    for cell in cells:
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def _output(output, execution_count):
    if output.output_type == "error":
        # Frames carry paths of the machine and line numbers of its packages; the last line is the message.
        output.traceback = [f"{output.ename}: {output.evalue}"]
    if output.output_type == "execute_result":
        output.execution_count = execution_count
    if output.output_type in ("execute_result", "display_data"):
        output.data.pop(WIDGET_VIEW, None)  # random model ids, of no use without a kernel
        if PNG in output.data:
            output.data[PNG] = "".join(output.data[PNG].split())
        alt = output.metadata.get("alt")
        output.metadata = {"alt": alt} if alt else {}
    return output


def _merge_streams(outputs):
    """Join neighboring pieces of one stream: where a kernel cuts them depends on timing."""
    merged = []
    for output in outputs:
        if merged and output.output_type == "stream" and output.name == merged[-1].get("name"):
            merged[-1].text += output.text
        else:
            merged.append(output)
    return merged


def _copy_alt(cell, number):
    """Give the cell's image its computed alt text, in the place where the book's build reads it."""
    shown = [output for output in cell.outputs if PNG in output.get("data", {})]
    alts = {output.metadata["alt"] for output in shown if output.metadata.get("alt")}
    if len(alts) > 1 or (alts and len(shown) > 1):
        raise ValueError(
            f"code cell {number} shows {len(shown)} images; one cell shows one image, with its alt text."
        )
    if alts:
        settings = cell.metadata.get("mystnb", {})
        cell.metadata["mystnb"] = {**settings, "image": {**settings.get("image", {}), "alt": alts.pop()}}
