#!/usr/bin/env python3
"""`tawpipe serve` as it is used: the form, an answer and the next question, at three sizes, light and dark; nothing cut, nothing that
the page may not load.

serve_test.py COMMAND. Exit 77 as pages.py.
"""
import itertools
import re
import subprocess
import unittest

from look_test import CUT, FAINT, SIZES
from pages import By, COMMAND, Pages


class Serve(Pages):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = subprocess.Popen([COMMAND, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
        cls.address = re.search(r"http://\S+", cls.server.stdout.readline())[0]

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.server.communicate()
        super().tearDownClass()

    def tearDown(self):
        self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": ""}]})

    def looks_well(self):
        for (width, height), scheme in itertools.product(SIZES, ("light", "dark")):
            with self.subTest(width=width, scheme=scheme):
                self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
                self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
                self.script("window.report && report.drawAll()")
                self.assertEqual(self.script(CUT), [])
                self.assertEqual(self.script(FAINT), [])
                self.assert_no_errors()
                # All controls and the verdict are on the first screen.
                for one in self.browser.find_elements(By.CSS_SELECTOR, "#ask input, #ask button"):
                    self.assertTrue(one.is_displayed())
                    self.assertLess(one.rect["y"] + one.rect["height"], height)

    def field(self, name):
        return self.browser.find_element(By.NAME, name)

    def fill(self, **values):
        for name, value in values.items():
            field = self.field(name.replace("_", "-"))
            field.clear()
            field.send_keys(value)

    def press(self, word):
        self.browser.find_element(By.XPATH, f"//form[@id='ask']//button[text()='{word}']").click()

    def test_a_plan_then_a_comparison(self):
        self.browser.get(self.address)
        self.looks_well()
        self.fill(cluster="dgx-h100", model="llama-3-8b", sequence="4096", global_batch="32", schedules="1f1b,fsdp", price="2.5USD")
        self.press("Plan")
        self.assertEqual(self.script("report.data.command"), "plan")
        self.assertIn("cluster=dgx-h100&", self.browser.current_url)
        self.assertIn("price=2.5USD", self.browser.current_url)
        self.assertEqual(self.field("schedules").get_attribute("value"), "1f1b,fsdp")
        self.assertTrue(self.browser.find_element(By.ID, "verdict").text.startswith("Use "))
        self.looks_well()
        self.fill(schedules="1f1b")
        self.press("Compare")
        self.assertEqual(self.script("report.data.command"), "compare")
        self.assertEqual(len(self.script("report.data.answer.results")), 1)
        # What the page offers works under what the server allows a page.
        for button in self.browser.find_elements(By.XPATH, "//main//button[text()='SVG' or text()='PNG']")[:4]:
            self.script("arguments[0].click()", button)
        self.browser.back()
        self.assertEqual(self.script("report.data.command"), "plan")
        self.assert_no_errors()

    def test_a_wrong_value_is_told_beside_the_form(self):
        self.browser.get(self.address)
        self.fill(cluster="dgx-h10")
        self.press("Plan")
        why = self.browser.find_element(By.ID, "why")
        self.assertIn("did you mean 'dgx-h100'", why.text)
        self.assertEqual(self.field("cluster").get_attribute("value"), "dgx-h10")
        self.browser.get_log("browser")  # Chromium tells of each answer 400
        self.looks_well()


if __name__ == "__main__":
    unittest.main()
