#!/usr/bin/env python3
"""Searches the built docs, opened from a file, in a headless Chromium: a word leads to the page that explains it, with no error in the
console. Not: what the pages say. Usage: site_test.py SITE; ends with 77, with a word why, without a site (docs.site builds it),
Chromium or selenium.
"""
import os
import pathlib
import shutil
import sys

SKIP = 77
try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    debian = "/usr/bin/python3"
    if os.path.exists(debian) and os.path.realpath(sys.executable) != os.path.realpath(debian):
        os.execv(debian, [debian, *sys.argv])
    print("skipped: selenium is not installed; on Debian: apt-get install python3-selenium chromium chromium-driver")
    sys.exit(SKIP)

site = pathlib.Path(sys.argv[1]).resolve()
if not (site / "index.html").exists() or not shutil.which("chromium") or not shutil.which("chromedriver"):
    print(f"skipped: no site in {site}, or no Chromium; on Debian: apt-get install mkdocs mkdocs-material chromium chromium-driver")
    sys.exit(SKIP)

# What is searched, and the page that must be among the first three found.
SEARCHES = {"young daly": "run_cost.html", "torchtitan": "frameworks.html", "lora": "faq.html", "how sure": "how_sure.html",
            "compare-timelines": "command-compare-timelines.html", "StopScope": "api-core.html"}

options = webdriver.ChromeOptions()
options.binary_location = shutil.which("chromium")
for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"):
    options.add_argument(flag)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
browser = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
failed = 0
for words, page in SEARCHES.items():
    browser.get((site / "index.html").as_uri())
    field = browser.find_element(By.CSS_SELECTOR, ".md-search__input")
    field.click()
    field.send_keys(words)
    WebDriverWait(browser, 120).until(lambda one: "matching" in one.find_element(By.CSS_SELECTOR, ".md-search-result__meta").text)
    found = [link.get_attribute("href").split("/")[-1].split("?")[0].split("#")[0]
             for link in browser.find_elements(By.CSS_SELECTOR, ".md-search-result__item > .md-search-result__link")]
    if page not in found[:3]:
        failed += 1
        print(f"'{words}' leads to {found[:3]}, not to {page}")
errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
browser.quit()
print("\n".join(errors) or f"{len(SEARCHES)} searches, {failed} failed")
sys.exit(1 if failed or errors else 0)
