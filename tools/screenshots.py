#!/usr/bin/env python3
"""Photographs the pages of --report that README.md and docs/ show, in a headless Chromium: docs/screenshots/*.png.
Not: the pictures that the command draws itself (pictures.py). Browsers differ in fonts, so no test compares the bytes; browser/ tests
what stands on a page. Needs Debian's chromium, chromium-driver and python3-selenium. Usage: screenshots.py TAWPIPE
"""
import pathlib
import subprocess
import sys
import tempfile

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "screenshots"
PROBLEM = "--cluster a800x24-10gbe --model llama-48x1024 --sequence 16384"

# name: (command, width and height, what is done on the page)
SHOTS = {
    "report": (f"simulate {PROBLEM} --global-batch 192 --schedule weipipe --microbatch 2", (1400, 1000), """
        const one = report.iterations[0], row = one.rows[one.row(9, 0)];
        report.view.from = one.makespan * 0.30; report.view.to = one.makespan * 0.5; report.zoom(1, report.view.from);
        report.pick(report.views[0], row.tasks[row.tasks.length >> 1]);
        document.getElementById('of_schedules').scrollIntoView();"""),
    "compare": (f"compare {PROBLEM} --global-batch 1536 --cost roofline --schedules tawpipe,fsdp,weipipe,1f1b", (1400, 1300), ""),
}


def main():
    command = pathlib.Path(sys.argv[1]).resolve()
    FOLDER.mkdir(exist_ok=True)
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    browser = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    with tempfile.TemporaryDirectory() as folder:
        for name, (words, (width, height), script) in SHOTS.items():
            page = pathlib.Path(folder, "page.html")
            subprocess.run([command, *words.split(), "--report", page], stdout=subprocess.DEVNULL, check=True)
            browser.set_window_size(width, height)
            browser.get(page.as_uri())
            browser.execute_script(script)
            browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
            browser.save_screenshot(str(FOLDER / f"{name}.png"))
    browser.quit()


main()
