"""A headless Chromium that looks at Flower as a person does."""

import base64
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tests.stack import wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

# Nothing is to leave the machine, and root has no sandbox to give.
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1500,700",
)


@contextmanager
def chromium() -> Iterator[WebDriver]:
    """A browser with a profile of its own; it and its driver end with the block."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in FLAGS:
        options.add_argument(flag)
    with tempfile.TemporaryDirectory() as profile:
        options.add_argument(f"--user-data-dir={profile}")
        driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        try:
            yield driver
        finally:
            driver.quit()


@dataclass
class FlowerPages:
    """Flower's pages in that browser, with a login."""

    driver: WebDriver
    port: int
    login: str

    def open(self, path: str) -> None:
        """Go to a page, with the login sent on every request, as a browser does once a person has typed it."""
        secret = base64.b64encode(self.login.encode()).decode()
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": {"Authorization": f"Basic {secret}"}})
        self.driver.get(f"http://127.0.0.1:{self.port}{path}")

    def rows(self) -> list[dict[str, str]]:
        """The list of tasks as it is on the screen, by the heads of its columns."""
        self.open("/tasks?limit=100")
        wait_until(
            lambda: self.driver.find_elements(By.CSS_SELECTOR, "#tasks-table tbody td"), "the list is filled", 30
        )
        heads = [each.get_attribute("textContent") or "" for each in self._all("#tasks-table thead th")]
        found = []
        for row in self._all("#tasks-table tbody tr"):
            cells = [each.get_attribute("textContent") or "" for each in row.find_elements(By.TAG_NAME, "td")]
            if len(cells) > 1:
                found.append(
                    dict(zip([head.strip() for head in heads], [cell.strip() for cell in cells], strict=False))
                )
        return found

    def details(self, task_id: str) -> str:
        """The text of one task's page."""
        self.open(f"/task/{task_id}")
        return self.driver.find_element(By.TAG_NAME, "body").text

    def press(self, task_id: str, button: str) -> None:
        """Open a task's page and press a button on it: "Revoke" or "Terminate"."""
        self.open(f"/task/{task_id}")
        pressed = wait_until(
            lambda: self.driver.find_elements(By.XPATH, f"//button[contains(., '{button}')]"), f"a button {button}", 30
        )
        pressed[0].click()

    def picture(self, path: Path) -> None:
        """What is on the screen now, as PNG."""
        self.driver.save_screenshot(str(path))

    def _all(self, selector: str) -> list[webdriver.remote.webelement.WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)
