"""What the site needs besides the pages of docs/: README and its like, the notebooks, and links between all of them.

Pages link to each other by their paths in the repository, so that they can also be read there. MkDocs only knows the
files below docs/: the pages from elsewhere get a path there, and links to them are written anew.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md")
"""Pages of the repository's root."""
LINK = re.compile(r"(\]\()([^)\s#]+)")  # its text may have code
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`]+`)", re.DOTALL | re.MULTILINE)


def site_paths() -> dict[str, str]:
    """Return where pages from outside docs/ are on the site, by their path in the repository."""
    notebooks = sorted((ROOT / "examples").glob("*.ipynb"))
    return {
        **{name: f"project/{name}" for name in PROJECT},
        **{f"examples/{path.name}": f"examples/{path.stem}.md" for path in notebooks},
    }


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    from mkdocs.structure.files import File

    for source, path in site_paths().items():
        files.append(File.generated(config, path, content=page_text(ROOT / source)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write the page's links for the site."""
    return with_site_links(markdown, page.file.src_uri)


def page_text(path: Path) -> str:
    """Return a page as Markdown, whatever its format."""
    text = path.read_text(encoding="utf-8")
    return notebook_markdown(json.loads(text)) if path.suffix == ".ipynb" else text


def with_site_links(markdown: str, path: str) -> str:
    """Return a page with links for the site.

    Args:
        markdown: its text, with links that are relative to its path in the repository.
        path: its path on the site.
    """
    moved = site_paths()
    sources = {site: source for source, site in moved.items()}
    source = sources.get(path, f"docs/{path}")

    def link(found: re.Match[str]) -> str:
        if ":" in found[2]:
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[2]))
        on_site = moved.get(target, target.removeprefix("docs/"))
        return found[1] + posixpath.relpath(on_site, posixpath.dirname(path) or ".")

    parts = CODE.split(markdown)
    return "".join(part if index % 2 else LINK.sub(link, part) for index, part in enumerate(parts))


def notebook_markdown(notebook: Mapping[str, Any]) -> str:
    """Return an executed notebook as a page: its texts, its code, and what that printed."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        if printed := "".join(map(_output_text, cell["outputs"])).rstrip():
            parts.append(f"```text\n{printed}\n```")
    return "\n\n".join(parts) + "\n"


def _output_text(output: Mapping[str, Any]) -> str:
    text = output["text"] if output["output_type"] == "stream" else output.get("data", {}).get("text/plain", "")
    return "".join(text).rstrip("\n") + "\n"
