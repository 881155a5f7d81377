#!/usr/bin/env python3
"""Opens reports in a headless Chromium and uses them: numbers as in the JSON, zoom, hover, click, find, no error in the console.

report_test.py COMMAND: the `tawpipe` that writes the reports. Exit 77, with a word why, where there is no Chromium or selenium
(on Debian: apt-get install chromium chromium-driver python3-selenium).
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SKIP = 77
try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
except ImportError:
    debian = "/usr/bin/python3"
    if os.path.exists(debian) and os.path.realpath(sys.executable) != os.path.realpath(debian):
        os.execv(debian, [debian, *sys.argv])
    print("skipped: selenium is not installed; on Debian: apt-get install python3-selenium chromium chromium-driver")
    sys.exit(SKIP)

COMMAND = sys.argv.pop(1)
PROBLEM = ["--cluster", "a800x24-10gbe", "--model", "llama-48x1024", "--sequence", "16384", "--global-batch", "384"]


def browser():
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        print("skipped: Chromium is not installed; on Debian: apt-get install chromium chromium-driver")
        sys.exit(SKIP)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1500,1400"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(driver), options=options)


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.browser = browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.folder.cleanup()

    def open(self, command, *flags):
        """The page and the JSON of one run of the command."""
        page, numbers = pathlib.Path(self.folder.name, "page.html"), pathlib.Path(self.folder.name, "numbers.json")
        subprocess.run([COMMAND, command, *PROBLEM, *flags, "--report", page, "--json", numbers], check=True,
                       stdout=subprocess.DEVNULL)
        self.browser.get(page.as_uri())
        return json.loads(numbers.read_text())

    def script(self, text, *arguments):
        return self.browser.execute_script("return " + text, *arguments)

    def place_of(self, task):
        """Where a task is drawn, from the middle of the first timeline's canvas."""
        x, y = self.script(f"report.views[0].center({task})")
        canvas = self.browser.find_element(By.CSS_SELECTOR, "canvas.timeline")
        return canvas, x - canvas.size["width"] / 2, y - canvas.size["height"] / 2

    def assert_no_errors(self):
        self.assertEqual([line for line in self.browser.get_log("browser") if line["level"] == "SEVERE"], [])

    def test_simulate(self):
        numbers = self.open("simulate", "--schedule", "tawpipe", "--microbatch", "4")
        self.assertEqual(self.script("report.iterations[0].makespan"), numbers["makespan_ps"])
        self.assertEqual(self.script("report.iterations[0].count"), numbers["tasks"])
        self.assertEqual(self.script("report.data.schedules[0].summary"), {k: v for k, v in numbers.items() if k not in ("cost", "bound_s", "gap")})
        cells = [cell.text for cell in self.browser.find_elements(By.CSS_SELECTOR, "#results tbody td")]
        self.assertEqual(cells[0], "tawpipe")
        self.assertEqual(cells[2], f"{round(numbers['tokens_per_device_per_second']):,}")
        self.assertEqual(cells[3], f"{100 * numbers['mfu']:.1f} %")
        held = self.script("Math.max(...report.iterations[0].memoryOf.map((held) => {"
                           "let most = 0; for (let p = 0; p < held.length; p += 6) {"
                           "let sum = 0; for (let k = 0; k < 6; ++k) sum += held[p + k]; most = Math.max(most, sum); } return most; }))")
        self.assertEqual(held, max(numbers["peak_memory_bytes"]))
        self.assert_no_errors()

    def test_zoom_hover_click_find(self):
        self.open("simulate", "--schedule", "1f1b", "--option", "overlap=on", "--microbatch", "4")
        whole = self.script("report.view.to - report.view.from")
        task = self.script("report.iterations[0].rows[0].tasks[5]")
        self.script("(report.view.from = report.iterations[0].start[arguments[0]] - 3 * report.iterations[0].length[arguments[0]],"
                    "report.view.to = report.view.from + 8 * report.iterations[0].length[arguments[0]], report.zoom(1, report.view.from))",
                    task)
        self.assertLess(self.script("report.view.to - report.view.from"), whole / 10)
        canvas, x, y = self.place_of(task)
        ActionChains(self.browser).move_to_element_with_offset(canvas, int(x), int(y)).perform()
        tip = self.browser.find_element(By.ID, "tip")
        self.assertIn(f"task {task}: ", tip.text)
        self.assertIn("rank 0, lane compute", tip.text)
        ActionChains(self.browser).click().perform()
        self.assertEqual(self.script("report.picked().task"), task)
        waits = self.script("report.iterations[0].dependencies(arguments[0])", task)
        told = self.browser.find_element(By.ID, "picked").text
        for other in waits:
            self.assertIn(f"{other} (", told)
        self.script("report.fit()")
        self.assertGreater(self.script("report.view.to - report.view.from"), whole * 0.99)
        body = self.browser.find_element(By.TAG_NAME, "body")
        body.send_keys("+")
        self.assertLess(self.script("report.view.to - report.view.from"), whole * 0.9)
        body.send_keys("c")
        self.assertEqual(self.browser.find_element(By.ID, "critical").get_attribute("aria-pressed"), "true")
        self.browser.find_element(By.ID, "search").send_keys("forward mb=3")
        found = self.script("report.iterations[0].rows[0].tasks.filter((t) => report.iterations[0].matches(t, ['forward', 'mb=3'])).length")
        self.assertEqual(found, 1)
        self.assert_no_errors()

    def test_compare_has_all_schedules_on_one_clock(self):
        numbers = self.open("compare", "--schedules", "tawpipe,1f1b:overlap=on")
        spans = self.script("report.iterations.map((one) => one.makespan)")
        self.assertEqual(spans, [result["makespan_ps"] for result in numbers["results"]])
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, "canvas.timeline")), 2)
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, ".device")), 24)
        self.assert_no_errors()

    def test_a_hundred_thousand_tasks(self):
        page = pathlib.Path(self.folder.name, "large.html")
        subprocess.run([COMMAND, "simulate", *PROBLEM[:-1], "3072", "--schedule", "tawpipe", "--microbatch", "1", "--report", page,
                        "--json", self.folder.name + "/large.json"], check=True, stdout=subprocess.DEVNULL)
        tasks = json.loads(pathlib.Path(self.folder.name, "large.json").read_text())["tasks"]
        self.assertGreater(tasks, 100_000)
        self.assertLess(page.stat().st_size / tasks, 60)  # bytes a task: 6 MB for 100,000
        self.browser.get(page.as_uri())
        frames = self.script("(() => { const view = report.views[0], times = []; report.zoom(0.5, 0); for (let i = 0; i < 21; ++i) {"
                             "const at = performance.now(); report.view.from += 1e9; report.view.to += 1e9; view.draw();"
                             "times.push(performance.now() - at); } return times.sort((a, b) => a - b)[10]; })()")
        print(f"{tasks} tasks, {page.stat().st_size} bytes; median of a frame: {frames:.1f} ms")
        self.assert_no_errors()


if __name__ == "__main__":
    unittest.main()
