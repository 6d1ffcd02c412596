"""The picture of a report with numbers, docs/images/report.png, of the comparison that `icalib demo` ends with.

make demo report-picture (needs Chromium)
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PICTURE = Path(__file__).resolve().parent / "images" / "report.png"
WIDTH, HEIGHT = 1160, 1245
MARKS = """
<style>
  .mark {position: absolute; width: 1.7rem; height: 1.7rem; border-radius: 50%; background: #d9541e; color: white;
         font: bold 1rem/1.7rem sans-serif; text-align: center}
</style>
<script>
  const mark = (element, number, side) => {
    const box = element.getBoundingClientRect(), badge = document.createElement("div");
    badge.className = "mark";
    badge.textContent = number;
    badge.style.left = (side == "above" ? (box.left + box.right) / 2 - 4 : box.left - 34) + "px";
    badge.style.top = window.scrollY + (side == "above" ? box.top - 24 : box.top) + "px";
    document.body.append(badge);
  };
  addEventListener("load", () => {
    const first = (selector, text) =>
      [...document.querySelectorAll(selector)].find(one => one.textContent.trim().startsWith(text));
    mark(first("section.card p", ""), 1, "left");
    mark(first(".warning", ""), 2, "left");
    mark(first("tbody th", "candidates-only"), 3, "left");
    for (const [metric, number] of [["R@1", 4], ["MAP", 4], ["ECE", 5], ["NLL", 5], ["Brier", 5]])
      mark(first("thead th", metric), number, "above");
  });
</script>
"""


def main(report: Path) -> None:
    """Mark a report's parts with numbers, and save its first screen."""
    with TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(report.read_text(encoding="utf-8") + MARKS, encoding="utf-8")
        size = f"--window-size={WIDTH},{HEIGHT}"
        browser = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", size, f"--screenshot={PICTURE}"]
        subprocess.run([*browser, page.as_uri()], check=True, capture_output=True)
    print(PICTURE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
