"""A browser without a window, for pages that draw: where the machine has none, those who ask for it skip."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Browser:
    """Opens pages in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self._command = next(filter(None, map(shutil.which, _NAMES)), None)
        if self._command is None:
            pytest.skip(f"needs one of the browsers {', '.join(_NAMES)}")

    def run(self, html, script):
        """What the script returns, at the end of the page in a window of 1200 x 800."""
        tells = f"document.body.dataset.told = JSON.stringify((() => {{ {script} }})());"
        fails = "document.body.dataset.told = JSON.stringify({ failed: String(error.stack) });"
        probe = f'<script>addEventListener("load", () => {{ try {{ {tells} }} catch (error) {{ {fails} }} }});</script>'
        found = self._open(html.replace("</body>", f"{probe}</body>"), "--dump-dom")
        told = json.loads(unescape(re.search(r'<body[^>]* data-told="([^"]*)"', found)[1]))
        assert not (isinstance(told, dict) and "failed" in told), told["failed"]
        return told

    def screenshot(self, html, path):
        """The page as it looks, into a PNG."""
        self._open(html, f"--screenshot={path}")

    def _open(self, html, what):
        page = self.folder / "page.html"
        page.write_text(html, encoding="utf-8")
        profile = f"--user-data-dir={self.folder / 'profile'}"
        looks = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,800")
        # Frames in a sandbox would have a process and a time of their own, for which a screenshot does not wait.
        times = ("--virtual-time-budget=2000", "--disable-features=IsolateSandboxedIframes")
        words = [self._command, *looks, *times, profile, what, page.as_uri()]
        done = subprocess.run(words, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout
