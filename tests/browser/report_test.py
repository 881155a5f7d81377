#!/usr/bin/env python3
"""Opens reports in a headless Chromium and uses them: numbers as in the JSON, zoom, hover, click, find, no error in the console.

report_test.py COMMAND: the `tawpipe` that writes the reports. Exit 77, with a word why, where there is no Chromium or selenium
(on Debian: apt-get install chromium chromium-driver python3-selenium).

Limits of time grow with how much longer than usual this machine takes, at that moment, for work of the same kind in the same browser.
"""
import json
import subprocess
import unittest

from chromium import ActionChains, By
from pages import COMMAND, DATA, LLAMA, PROBLEM, Pages


class Reports(Pages):
    def test_simulate(self):
        numbers = self.open("simulate", "--schedule", "tawpipe", "--microbatch", "4")
        self.assertEqual(self.script("report.iterations[0].makespan"), numbers["makespan_ps"])
        self.assertEqual(self.script("report.iterations[0].count"), numbers["tasks"])
        summary = {key: value for key, value in numbers.items() if key not in ("cost", "bound_s", "gap", "interval_s", "error_of", "runs_in")}
        self.assertEqual(self.script("report.data.schedules[0].summary"), summary)
        cells = self.cells()
        self.assertTrue(cells["schedule"].startswith("tawpipe"), cells)
        self.assertEqual(cells["tokens/s/device"], self.rounded(numbers["tokens_per_device_per_second"]))
        self.assertEqual(cells["MFU"], f"{100 * numbers['mfu']:.1f} %")
        held = self.script("Math.max(...report.iterations[0].memoryOf.map((held) => {"
                           "let most = 0; for (let p = 0; p < held.length; p += 6) {"
                           "let sum = 0; for (let k = 0; k < 6; ++k) sum += held[p + k]; most = Math.max(most, sum); } return most; }))")
        self.assertEqual(held, max(numbers["peak_memory_bytes"]))
        left = self.script("report.iterations[0].linksOf.filter((_, row) => row % 2 === 0)"
                           ".map((all) => all.reduce((a, b) => a + b, 0))")
        for sent, told in zip(left, numbers["traffic"]["node_egress_bytes"]):
            self.assertAlmostEqual(sent / told, 1, places=5)
        self.assertRegex(self.hover(self.browser.find_element(By.ID, "memory")), "weights .*B")
        self.assertRegex(self.hover(self.browser.find_element(By.ID, "links")), "node")
        devices = self.browser.find_elements(By.CSS_SELECTOR, "#cluster .device")
        self.assertEqual(len(devices), 8)  # one node of three that are alike
        self.assertIn("node 0 of 3 alike", self.browser.find_element(By.ID, "cluster").text)
        self.browser.find_element(By.ID, "all_nodes").click()
        devices = self.browser.find_elements(By.CSS_SELECTOR, "#cluster .device")
        self.assertEqual(len(devices), 24)
        self.assertIn("keeps the weights of stage 0", self.hover(devices[0]))
        self.assert_no_errors()

    def test_names_are_shown_as_they_are(self):
        cluster = self.path("cluster.json")
        subprocess.run([COMMAND, "topology", "show", "2x2", "--json", cluster], check=True, stdout=subprocess.DEVNULL)
        name = "<img src=x onerror=alert(1)></script>"
        cluster.write_text(json.dumps({**json.loads(cluster.read_text()), "name": name}))
        self.run_and_open("simulate", "--cluster", str(cluster), "--model", "llama-8x512", "--sequence", "1024",
                          "--global-batch", "8", "--schedule", "1f1b")
        self.assertEqual(self.browser.find_element(By.ID, "title").text, "1f1b on " + name)
        self.assertEqual(self.browser.find_elements(By.TAG_NAME, "img"), [])
        self.assert_no_errors()

    def test_light_and_dark(self):
        self.open("simulate", "--schedule", "fsdp", "--microbatch", "4")
        backs = []
        for scheme in ("light", "dark"):
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            backs.append(self.script("getComputedStyle(document.body).backgroundColor"))
            self.script("report.drawAll()")
            picture = self.path(f"{scheme}.png")
            self.browser.save_screenshot(str(picture))
            self.assertGreater(picture.stat().st_size, 20_000)
        self.assertEqual(backs, ["rgb(255, 255, 255)", "rgb(22, 24, 28)"])
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
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
        self.assertIn("decided by a chain of", told)
        # The chain ends at the iteration's start, and each of it starts when the one before it in time ends.
        chain = self.script("report.picked().chain")
        self.assertEqual(chain[0], task)
        self.assertEqual(self.script("report.iterations[0].start[arguments[0]]", chain[-1]), 0)
        self.browser.find_element(By.TAG_NAME, "body").send_keys("]")
        self.assertEqual(self.script("report.picked().task"), self.script("report.iterations[0].rows[0].tasks[6]"))
        self.script("report.fit()")
        self.assertGreater(self.script("report.view.to - report.view.from"), whole * 0.99)
        body = self.browser.find_element(By.TAG_NAME, "body")
        body.send_keys("+")
        self.assertLess(self.script("report.view.to - report.view.from"), whole * 0.9)
        body.send_keys("c")
        self.assertEqual(self.browser.find_element(By.ID, "critical").get_attribute("aria-pressed"), "true")
        lit = self.script("report.iterations[0].rows.reduce((sum, row) => sum + row.lit.length, 0)")
        ends = self.script("report.iterations[0].critical.reduce((sum, t) => {"
                           "report.iterations[0].ends(t, () => ++sum); return sum; }, 0)")
        self.assertEqual(lit, ends)
        body.send_keys("c")
        self.browser.find_element(By.ID, "search").send_keys("forward mb=3")
        self.assertEqual(self.script("report.iterations[0].rows[0].lit.length"), 1)
        self.assert_no_errors()

    def test_compare_has_all_schedules_on_one_clock(self):
        numbers = self.open("compare", "--schedules", "tawpipe,1f1b:overlap=on")
        spans = self.script("report.iterations.map((one) => one.makespan)")
        self.assertEqual(spans, [result["makespan_ps"] for result in numbers["results"]])
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, "canvas.timeline")), 2)
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, ".device")), 8)
        self.assertEqual(len(self.told(".pareto .point")), 2)
        self.choose("shown", "1")
        self.assertEqual(self.browser.find_elements(By.CSS_SELECTOR, "#cluster .device")[1].text.split(), ["1", "W", "1"])
        self.assert_no_errors()

    def test_plan(self):
        numbers = self.run_and_open("plan", "--cluster", "dgx-h100", *LLAMA, "--schedules", "1f1b,fsdp", "--top", "4")
        best = self.cells()
        use = numbers["use"]
        self.assertTrue(best["schedule"].startswith(use["schedule"]), best)
        self.assertEqual(self.browser.find_element(By.CSS_SELECTOR, "tr.best button").get_attribute("data-copies"), use["command"])
        self.assertTrue(best["tokens/s/device"].startswith(self.rounded(use["tokens_per_device_per_second"])), best)
        self.assertTrue(self.verdict().startswith(f"Use {use['words']} by"))
        self.assertEqual(self.script("report.iterations[0].makespan"), use["makespan_ps"])
        self.assertRegex(self.told(".fates rect")[3], f"^{numbers['searched']['simulated']:,} of [0-9,]+ simulated$")
        points = self.told(".pareto .point")
        self.assertGreaterEqual(len(points), len(numbers["pareto"]))
        self.assertEqual(self.hover(self.browser.find_element(By.CSS_SELECTOR, ".pareto .point")), points[0])
        self.assert_no_errors()

    def test_a_folded_plan_has_no_hole_and_one_total(self):
        numbers = self.run_and_open("plan", "--cluster", "dgx-h100*2", *LLAMA, "--data-parallel", "8")
        self.assertGreater(numbers["plans"][0]["folding"]["factor"], 1)
        self.assertFalse(self.browser.find_element(By.ID, "links").is_displayed())
        for device in self.browser.find_elements(By.CSS_SELECTOR, "#cluster .device"):
            self.assertIn("keeps the weights of stage", device.get_attribute("aria-label"))
        all_of = f"of {numbers['searched']['candidates']:,} "
        self.assertTrue(all(all_of in told for told in self.told(".fates rect")), self.told(".fates rect"))
        parts = sum(numbers["dropped"].values()) + numbers["searched"]["simulated"]
        self.assertEqual(parts, numbers["searched"]["candidates"])
        self.assert_no_errors()

    def test_plan_for_several_numbers_of_devices(self):
        numbers = self.run_and_open("plan", "--cluster", "dgx-h100", "--devices", "8..16", *LLAMA, "--schedules", "fsdp")
        self.assertEqual([self.cells(row)["devices"] for row in range(2)], ["8", "16"])
        self.assertEqual(self.told(".devices .point")[1].split()[0], "16")
        self.assertEqual(self.script("report.iterations.length"), len(numbers["by_devices"]))
        self.assertTrue(self.verdict().startswith("16 devices train "), self.verdict())
        self.assert_no_errors()

    def test_plan_for_other_clusters(self):
        numbers = self.run_and_open("plan", "--cluster", "dgx-h100", *LLAMA, "--schedules", "fsdp", "--what-if", "nodes=2", "--price", "2.5USD")
        [other] = numbers["what_if"]
        now, then = (self.cells(row, "#what-to-buy table") for row in (0, 1))
        self.assertEqual((now["cluster"], now["speed"], now["worth"]), ("as it is", "1.00 ×", "2.50"))
        self.assertEqual((then["cluster"], then["devices"]), (other["what"], "16"))
        self.assertEqual(then["tokens/s"], self.rounded(other["tokens_per_second"]))
        self.assertAlmostEqual(float(then["worth"]), other["worth_price"], delta=0.005)
        self.assertEqual(self.browser.find_elements(By.CSS_SELECTOR, "#what-to-buy td button")[1].get_attribute("data-copies"), other["plan"]["command"])
        self.assertEqual(len(self.told("#what-to-buy .bars rect")), 2)
        self.assert_no_errors()

    def test_plan_that_finds_nothing_says_what_would_fit(self):
        self.run_and_open("plan", "--cluster", "1x2", "--model", "llama-3-70b", "--sequence", "4096", "--global-batch", "8", codes=(1,))
        self.assertRegex(self.verdict(), "^No plan: nothing in the space fits the devices' memory: the least that a plan needs is ")
        self.assert_no_errors()

    def test_sweep(self):
        numbers = self.open("sweep", "--vary", "inter-node=1Gbps:100Gbps:log:4", "--vary", "recompute=full,selective",
                            "--schedules", "tawpipe,fsdp", "--microbatch", "4")
        possible = [point for point in numbers["points"] if "impossible" not in point]
        points = self.told(".sweep .point")
        self.assertEqual(len(points), len(possible))
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, ".sweep")), 2)
        for point in possible:
            speed = f"{round(point['tokens_per_device_per_second']):,}"
            self.assertTrue(any(told.startswith(point["schedule"]) and speed in told for told in points), point)
        self.assertEqual(self.hover(self.browser.find_element(By.CSS_SELECTOR, ".sweep .point")), points[0])
        self.choose("metric", "bubble_ratio")
        self.assertTrue(all(told.split(" (")[0].endswith(" %") for told in self.told(".sweep .point")))
        self.assert_no_errors()

    def test_train_shows_measured_above_predicted(self):
        data = self.path("text.txt")
        data.write_text("to be or not to be " * 200)
        numbers = self.run_and_open("train", "--model", "llama-2x32", "--data", str(data), "--sequence", "16", "--global-batch", "4",
                                    "--steps", "3", "--schedule", "1f1b", "--cluster", "1x2")
        labels = self.script("report.iterations.map((one) => one.label)")
        self.assertEqual(labels, ["measured, step 3", "predicted, from the times of step 2"])
        self.assertAlmostEqual(self.script("report.iterations[0].makespan") / 1e12, numbers["iteration_seconds"])
        losses = [told.split("loss ")[1] for told in self.told(".loss .point")]
        self.assertEqual(losses, [f"{loss:.4f}" for loss in numbers["losses"]])
        self.assertEqual(len(self.told(".steps .point")), 3)
        self.assertEqual(self.cells()["last loss"], f"{numbers['losses'][-1]:.4f}")
        self.assert_no_errors()

    def test_doctor_draws_who_waits_for_whom(self):
        numbers = self.run_and_open("doctor", str(DATA / "hangs" / "fr_p2p_crossed_4"), codes=(1,))
        self.assertIn("Deadlock", self.browser.find_element(By.ID, "verdict").text)
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, "#waits .rank")), 4)
        arrows = {(wait["rank"], other) for wait in numbers["waits"] for other in wait["on"]}
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, "#waits .wait")), len(arrows))
        self.assertIn("waits in a cycle", self.told("#waits .rank")[0])
        self.assert_no_errors()

    def test_what_if_shows_the_trace_and_each_answer(self):
        numbers = self.run_and_open("what-if", str(DATA / "what_if" / "trace.csv"), "--without-straggler", "17")
        answer = numbers["answers"][0]
        self.assertEqual(self.cells()["what if"], answer["question"])
        self.assertEqual(self.script("report.iterations.map((one) => one.label)"), ["as traced", answer["question"]])
        self.assertAlmostEqual(self.script("report.iterations[1].makespan") / 1e12, answer["traced_parts_s"][0])
        self.assertIn("rank 17", self.browser.find_element(By.ID, "outcome").text)
        self.assert_no_errors()

    def large(self, global_batch):
        """A page of many tasks, opened three times: tasks, bytes, and the best of loading it and of the median frame, in ms that a
        machine as fast as usual would take."""
        page = self.path("large.html")
        subprocess.run([COMMAND, "simulate", *PROBLEM[:-1], str(global_batch), "--schedule", "tawpipe", "--microbatch", "1",
                        "--report", page], check=True, stdout=subprocess.DEVNULL)
        drawn, frames, slow = [], [], []
        for _ in range(3):
            self.browser.get(page.as_uri())
            slowness = self.slowness()
            slow.append(slowness)
            drawn.append(self.script("performance.timing.loadEventEnd - performance.timing.navigationStart") / slowness)
            # Panning draws every timeline, memory and links; reading a pixel waits until they are painted.
            frames.append(self.script("(() => { const times = []; report.zoom(0.5, 0); for (let i = 0; i < 21; ++i) {"
                                      "const at = performance.now(); report.pan(0.01); report.drawAll();"
                                      "report.views[0].canvas.getContext('2d').getImageData(0, 0, 1, 1);"
                                      "times.push(performance.now() - at); } return times.sort((a, b) => a - b)[10]; })()") / slowness)
        tasks = self.script("report.iterations[0].count")
        print(f"{tasks} tasks, {page.stat().st_size} bytes; drawn after {min(drawn):.0f} ms, median of a frame {min(frames):.1f} ms, "
              f"on a machine {min(slow):.1f} to {max(slow):.1f} times as slow as usual")
        return tasks, page.stat().st_size, min(drawn), min(frames)

    def test_a_hundred_thousand_tasks(self):
        tasks, size, drawn, frame = self.large(1632)
        self.assertGreater(tasks, 100_000)
        self.assertLess(size / tasks, 60)  # 6 MB for 100,000
        self.assertLess(drawn, 2000)
        self.assertLess(frame, 50)
        # A click on the last task finds what decided its start, and who waits for it.
        self.script("report.pick(report.views[0], report.iterations[0].count - 1)")
        self.assertIn("decided by a chain of", self.browser.find_element(By.ID, "picked").text)
        self.assert_no_errors()

    def test_a_hundred_thousand_tasks_on_each_of_24_ranks(self):
        tasks, _, _, frame = self.large(38_400)
        self.assertGreater(tasks, 2_400_000)
        self.assertLess(frame, 50)
        self.assert_no_errors()


if __name__ == "__main__":
    unittest.main()
