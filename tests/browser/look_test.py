#!/usr/bin/env python3
"""What is seen of seven pages, at three sizes, light and dark: nothing cut, nothing empty, what is drawn stands out from what is behind
it, and colours are apart for colour-blind eyes. On a phone the first table begins on the first screen.

look_test.py COMMAND. Exit 77 as pages.py.
"""
import itertools
import unittest

from pages import DATA, LLAMA, Pages, PROBLEM

SIZES = [(390, 844), (800, 1000), (1400, 1000)]
FIRST_SCREEN = 844  # px, of a phone of 390 px

# What is cut: text wider than its box, a picture's words outside it, a page wider than the window.
CUT = """(() => {
  const cut = [];
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) cut.push(`the page: ${wide} px`);
  for (const one of document.querySelectorAll("body *")) {
    if (!one.offsetParent || one.closest("svg")) continue;
    const style = getComputedStyle(one);
    if (style.overflowX !== "visible" && one.scrollWidth > one.clientWidth + 1) cut.push(one.outerHTML.slice(0, 120));
  }
  for (const text of document.querySelectorAll("svg text")) {
    const box = text.getBoundingClientRect(), all = text.closest("svg").getBoundingClientRect();
    if (box.left < all.left - 1 || box.right > all.right + 1 || box.top < all.top - 2 || box.bottom > all.bottom + 2) cut.push(text.textContent);
  }
  return cut;
})()"""
# Marks and text that do not stand out from the background they are on: [what, contrast].
FAINT = """(() => {
  const read = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (color) => [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => {
    const c = color[i] / 255;
    return sum + share * (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  }, 0);
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const color = read(getComputedStyle(at).backgroundColor);
      if (color.length === 3) return color;
    }
    return read(getComputedStyle(document.body).backgroundColor);
  };
  const faint = [];
  const check = (what, color, one, least) => {
    const found = contrast(color, behind(one));
    if (found < least) faint.push([what, Number(found.toFixed(2))]);
  };
  for (const one of document.querySelectorAll("svg .point, svg polyline, .bars rect, .fates rect, .parts rect, .card svg rect:last-child"))
    check(one.outerHTML.slice(0, 80), read(getComputedStyle(one)[one.matches(".point, polyline") ? "stroke" : "fill"]), one, 3);
  for (const one of document.querySelectorAll("button, select, input, .part, .key i")) {
    const style = getComputedStyle(one);
    if (one.offsetParent) check(one.outerHTML.slice(0, 80), read(one.matches(".part, .key i") ? style.outlineColor : style.borderTopColor), one.parentElement, 3);
  }
  for (const one of document.querySelectorAll("body *")) {
    if (!one.offsetParent || ![...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    check(one.textContent.slice(0, 60), read(getComputedStyle(one).color), one, 4.5);
  }
  return faint;
})()"""

# Machado, Oliveira, Fernandes (2009), severity 1.0: what is seen without one kind of cones.
EYES = {"all": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]}
APART = 0.07  # of OKLab's distance, which is 1 from black to white; a just noticeable difference is about 0.02


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector)) for row in matrix]


def linear(color):
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (int(color[i:i + 2], 16) / 255 for i in (1, 3, 5))]


def oklab(rgb):
    cones = times([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                   [0.0883024619, 0.2817188376, 0.6299787005]], rgb)
    return times([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
                  [0.0259040371, 0.7827717662, -0.8086757660]], [max(c, 0) ** (1 / 3) for c in cones])


def apart(a, b):
    """How far two colours are from each other, for the eyes that tell them apart least."""
    def seen(eye, color):
        return oklab([min(max(c, 0), 1) for c in times(eye, linear(color))])
    return min(sum((x - y) ** 2 for x, y in zip(seen(eye, a), seen(eye, b))) ** 0.5 for eye in EYES.values())


def contrast(a, b):
    light = sorted(sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear(color))) for color in (a, b))
    return (light[1] + 0.05) / (light[0] + 0.05)


class Looks(Pages):
    def theme(self, scheme):
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def size(self, width, height):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def tearDown(self):
        self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.theme("")

    def looks(self, *arguments, codes=(0,), table=True):
        self.run_and_open(*arguments, codes=codes)
        for (width, height), scheme in itertools.product(SIZES, ("light", "dark")):
            with self.subTest(width=width, scheme=scheme):
                self.size(width, height)
                self.theme(scheme)
                self.browser.refresh()
                self.script("report.drawAll()")
                self.assertEqual(self.script(CUT), [])
                self.assertEqual(self.script(FAINT), [])
                self.assert_no_errors()
                if width < 500 and table:
                    self.assertLess(self.script("document.querySelector('table').getBoundingClientRect().top"), FIRST_SCREEN)

    def test_plan(self):
        self.looks("plan", "--cluster", "dgx-h100*2", *LLAMA, "--schedules", "1f1b,fsdp,interleaved-1f1b", "--train-tokens", "15T",
                   "--price", "2.5USD")

    def test_compare(self):
        self.looks("compare", *PROBLEM, "--schedules", "tawpipe,fsdp,1f1b")

    def test_simulate(self):
        self.looks("simulate", *PROBLEM, "--schedule", "tawpipe", "--microbatch", "4")

    def test_sweep(self):
        self.looks("sweep", *PROBLEM, "--vary", "inter-node=1Gbps:100Gbps:log:4", "--schedules", "tawpipe,fsdp", "--microbatch", "4",
                   table=False)

    def test_train(self):
        data = self.path("text.txt")
        data.write_text("to be or not to be " * 200)
        self.looks("train", "--model", "llama-2x32", "--data", str(data), "--sequence", "16", "--global-batch", "4", "--steps", "3",
                   "--schedule", "1f1b", "--cluster", "1x2")

    def test_doctor(self):
        self.looks("doctor", str(DATA / "hangs" / "fr_p2p_crossed_4"), codes=(1,), table=False)

    def test_what_if(self):
        self.looks("what-if", str(DATA / "what_if" / "trace.csv"), "--without-straggler", "17")

    def test_colours_are_apart_and_stand_out(self):
        self.run_and_open("simulate", *PROBLEM, "--schedule", "tawpipe", "--microbatch", "4")
        for scheme in ("light", "dark"):
            self.theme(scheme)
            back = self.script("getComputedStyle(document.documentElement).getPropertyValue('--back').trim()")
            for name in ("series_colors", "kind_colors", "op_colors", "payload_colors"):
                known = self.script(f"[...new Set(report.data.{name}.filter(Boolean))]")
                # An idle device is drawn as nothing, and payloads without a meaning as any other.
                colors = {c: self.script(f"getComputedStyle(document.documentElement).getPropertyValue('--t-{c[1:]}').trim()") for c in known
                          if c not in ("#d5d8dd",)}
                for color, tone in colors.items():
                    self.assertGreaterEqual(contrast(tone, back), 3, (scheme, name, color, tone))
                for (a, tone_a), (b, tone_b) in itertools.combinations(colors.items(), 2):
                    self.assertGreaterEqual(apart(tone_a, tone_b), APART, (scheme, name, a, b))

    def test_a_comparison_on_24_ranks_is_no_more_than_3_MB(self):
        numbers = self.run_and_open("compare", *PROBLEM)
        size = self.path("page.html").stat().st_size
        print(f"{len(numbers['results'])} schedules, {sum(result['tasks'] for result in numbers['results'])} tasks, {size} bytes")
        self.assertLess(size, 3_000_000)


if __name__ == "__main__":
    unittest.main()
