#!/usr/bin/env python3
"""Searches the built docs, opened from a file, in a headless Chromium: a word leads to the page that explains it, with no error in the
console. Not: what the pages say. Usage: site_test.py SITE; ends with 77, with a word why, without a site (docs.site builds it),
Chromium or selenium.
"""
import pathlib
import sys

from chromium import SKIP, By, WebDriverWait, browser, errors_of

site = pathlib.Path(sys.argv[1]).resolve()
if not (site / "index.html").exists():
    print(f"skipped: no site in {site}; on Debian: apt-get install mkdocs mkdocs-material")
    sys.exit(SKIP)

# What is searched, and the page that must be among the first three found.
SEARCHES = {"young daly": "run_cost.html", "torchtitan": "frameworks.html", "lora": "faq.html", "how sure": "how_sure.html",
            "compare-timelines": "command-compare-timelines.html", "StopScope": "api-core.html"}

one = browser()
failed = 0
for words, page in SEARCHES.items():
    one.get((site / "index.html").as_uri())
    field = one.find_element(By.CSS_SELECTOR, ".md-search__input")
    field.click()
    field.send_keys(words)
    WebDriverWait(one, 120).until(lambda _: "matching" in one.find_element(By.CSS_SELECTOR, ".md-search-result__meta").text)
    found = [link.get_attribute("href").split("/")[-1].split("?")[0].split("#")[0]
             for link in one.find_elements(By.CSS_SELECTOR, ".md-search-result__item > .md-search-result__link")]
    if page not in found[:3]:
        failed += 1
        print(f"'{words}' leads to {found[:3]}, not to {page}")
errors = errors_of(one)
one.quit()
print("\n".join(errors) or f"{len(SEARCHES)} searches, {failed} failed")
sys.exit(1 if failed or errors else 0)
