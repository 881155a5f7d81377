"""A headless Chromium for the tests of this folder.
Not: a test. Exit 77, with a word why, where there is no Chromium or selenium (on Debian: apt-get install chromium chromium-driver
python3-selenium).
"""
import os
import shutil
import sys

SKIP = 77
try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    debian = "/usr/bin/python3"
    if os.path.exists(debian) and os.path.realpath(sys.executable) != os.path.realpath(debian):
        os.execv(debian, [debian, *sys.argv])
    print("skipped: selenium is not installed; on Debian: apt-get install python3-selenium chromium chromium-driver")
    sys.exit(SKIP)


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


def errors_of(one):
    """What the browser's console has of errors since the last call."""
    return [line["message"] for line in one.get_log("browser") if line["level"] == "SEVERE"]
