"""The pages of the command in a browser, for the tests of this folder. Not: a test; the browser (chromium.py)."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from chromium import ActionChains, By, browser, errors_of

COMMAND = sys.argv.pop(1)
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
PROBLEM = ["--cluster", "a800x24-10gbe", "--model", "llama-48x1024", "--sequence", "16384", "--global-batch", "384"]
LLAMA = ["--model", "llama-3-8b", "--sequence", "4096", "--global-batch", "32"]


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.browser = browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.folder.cleanup()

    def path(self, name):
        return pathlib.Path(self.folder.name, name)

    def run_and_open(self, *arguments, codes=(0,)):
        """The page and the JSON of one run of the command; the page's answer is that JSON."""
        page, numbers = self.path("page.html"), self.path("numbers.json")
        done = subprocess.run([COMMAND, *arguments, "--report", page, "--json", numbers], stdout=subprocess.DEVNULL, check=False)
        self.assertIn(done.returncode, codes)
        self.browser.get(page.as_uri())
        made = self.browser.find_element(By.ID, "command").text
        self.assertTrue(made.startswith(" ".join(["tawpipe", arguments[0]])), made)
        self.assertIn(f"--report {page}", made)
        version = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        self.assertRegex(self.browser.find_element(By.ID, "version").text, f"^{version}, 20[0-9-]{{8}}$")
        answer = json.loads(numbers.read_text())
        self.assertEqual(self.script("report.data.answer"), answer)
        return answer

    def open(self, command, *flags):
        return self.run_and_open(command, *PROBLEM, *flags)

    def cells(self, row=0, of="table"):
        """A row of a table, by column."""
        table = self.browser.find_element(By.CSS_SELECTOR, of)
        names = [cell.text for cell in table.find_elements(By.TAG_NAME, "th")]
        rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
        return dict(zip(names, (cell.get_attribute("textContent") for cell in rows[row].find_elements(By.TAG_NAME, "td"))))

    def verdict(self):
        return self.browser.find_element(By.CSS_SELECTOR, "#verdict p").text

    def rounded(self, value):
        """Tokens as a page tells them, with three digits."""
        for unit, name in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " K")):
            if value >= unit:
                digits = 2 if value < 10 * unit else 1 if value < 100 * unit else 0
                return f"{value / unit:.{digits}f}{name}"
        return f"{value:.0f}"

    def told(self, selector):
        """What the marks of a chart tell, in order."""
        return [mark.get_attribute("aria-label") for mark in self.browser.find_elements(By.CSS_SELECTOR, selector)]

    def choose(self, select, value):
        self.script("(document.getElementById(arguments[0]).value = arguments[1],"
                    "document.getElementById(arguments[0]).dispatchEvent(new Event('change')))", select, value)

    def hover(self, element):
        self.script("arguments[0].scrollIntoView({block: 'center'})", element)
        ActionChains(self.browser).move_to_element(element).perform()
        return self.browser.find_element(By.ID, "tip").text

    def script(self, text, *arguments):
        return self.browser.execute_script("return " + text, *arguments)

    def place_of(self, task):
        """Where a task is drawn, from the middle of the first timeline's canvas."""
        x, y = self.script(f"report.views[0].center({task})")
        canvas = self.browser.find_element(By.CSS_SELECTOR, "canvas.timeline")
        self.script("arguments[0].scrollIntoView({block: 'center'})", canvas)
        return canvas, x - canvas.size["width"] / 2, y - canvas.size["height"] / 2

    def slowness(self):
        """How many times as long as usual the browser takes for sorting a million numbers and filling memory, at least 1."""
        usual = 130  # ms, two cores of a server of 2022 that do nothing else
        took = self.script("(() => { const at = performance.now(), all = new Float64Array(1e6); let x = 1;"
                           "for (let i = 0; i < 1e6; ++i) { x = x * 16807 % 2147483647; all[i] = x; } all.sort();"
                           "return performance.now() - at; })()")
        return max(1, took / usual)

    def assert_no_errors(self):
        # Nothing tall is empty: neither text, nor anything drawn in it.
        holes = self.script("[...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().height > 200 &&"
                            " !one.textContent.trim() && !one.closest('svg') && !(one.tagName === 'CANVAS' && "
                            "new Uint32Array(one.getContext('2d').getImageData(0, 0, one.width, one.height).data.buffer).some(Boolean))"
                            ").map((one) => one.outerHTML.slice(0, 200))")
        self.assertEqual(holes, [])
        for hidden in self.browser.find_elements(By.CSS_SELECTOR, "[hidden]"):
            self.assertFalse(hidden.is_displayed(), hidden.get_attribute("outerHTML")[:200])
        self.assertEqual(errors_of(self.browser), [])
