"""A headless Chromium that keeps what its console said and what it asked of any network."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = "chromium", "chromedriver"
# Coloured pixels of all canvases in an element, those in shadow trees too: what a chart has drawn.
COUNT_COLOURED = """
const canvases = [];
const walk = (node) => {
  if (node.shadowRoot) walk(node.shadowRoot);
  if (node instanceof HTMLCanvasElement) canvases.push(node);
  for (const child of node.children || []) walk(child);
};
walk(arguments[0]);
let coloured = 0;
for (const canvas of canvases) {
  if (!canvas.width || !canvas.height) continue;
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 0; i < data.length; i += 4) {
    const [r, g, b, a] = [data[i], data[i + 1], data[i + 2], data[i + 3]];
    if (a > 60 && Math.max(r, g, b) - Math.min(r, g, b) > 60) coloured += 1;
  }
}
return coloured;
"""


class Browser:
    """One window."""

    def __init__(self) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
            options.add_argument(f"--{flag}")
        options.binary_location = str(shutil.which(CHROMIUM))
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver: Any = webdriver.Chrome(options=options, service=Service(shutil.which(DRIVER)))

    def open(self, page: Path | str, width: int) -> None:
        """Show a page, a file or an address, and wait until it is drawn."""
        self.resize(width)
        self.driver.get(page.as_uri() if isinstance(page, Path) else page)
        self.wait("document.body.dataset.drawn === 'yes'")

    def resize(self, width: int) -> None:
        """As wide as this, and the page is given the time to be drawn again."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_async_script("setTimeout(arguments[0], 500)")

    def scheme(self, name: str, medium: str = "") -> None:
        """What the browser wishes for, 'light' or 'dark'; medium: 'print' as on paper."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium, "features": features})

    def wait(self, condition: str) -> None:
        """Until a JavaScript expression is true."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 60, 0.1).until(lambda driver: driver.execute_script(f"return {condition}"))

    def run(self, script: str, *arguments: object) -> Any:
        """The result of a script in the page."""
        return self.driver.execute_script(script, *arguments)

    def complaints(self) -> list[str]:
        """What the console said since the last call, but for Bokeh's greeting."""
        return [
            f"{entry['level']}: {entry['message']}"
            for entry in self.driver.get_log("browser")
            if entry["level"] != "INFO"
        ]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call, other than files and data."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith(("file:", "data:", "blob:"))]

    def coloured_pixels(self, selector: str) -> int:
        """Of the canvases in an element."""
        return int(self.run(COUNT_COLOURED.replace("arguments[0]", f"document.querySelector('{selector}')")))


def require_browser() -> None:
    """Skip the test where there is no Chromium, or no selenium."""
    pytest.importorskip("selenium", reason="selenium is not installed: pip install '.[dev]'")
    for name in (CHROMIUM, DRIVER):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed (make test-packages)")
