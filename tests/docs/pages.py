#!/usr/bin/env python3
"""What a reader may expect of README.md and docs/: no page is too long, each command has a page, each answer of the FAQ is short and has a
command and a link, and no page uses a word that is ours alone.
Not: links and flags (tools/check_links.py), nor whether commands run (blocks.py). Usage: pages.py TAWPIPE
"""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(root / "tools"))
from command_help import commands  # noqa: E402

FENCE = re.compile(r"^```.*?^```\n?", re.S | re.M)
CODE_OR_TARGET = re.compile(r"`[^`]*`|\]\([^)]*\)")
# The industry has words for these: GEMM, latent, egress, "says". The glossary explains those that stand in code.
PRIVATE = re.compile(r"\b(twins?|census|Guest|unturned|turned (?:numbers?|part)|hopeless|told|tells?|matrix products?|out of a node)\b")
APART = re.compile(r"\b(?:do not |cannot )?tell apart\b")  # the answer's own words

failures = []
pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
for page in pages:
    text = page.read_text()
    longest = {"README.md": 150}.get(page.name, 40 if page.parent.name == "commands" else 400)
    if text.count("\n") > longest:
        failures.append(f"{page.relative_to(root)} has {text.count(chr(10))} lines; at most {longest}: split it by idea")
    if page.stem != "glossary":
        prose = FENCE.sub("", text)
        for found in PRIVATE.finditer(APART.sub("", CODE_OR_TARGET.sub("", prose))):
            failures.append(f"{page.relative_to(root)}: '{found.group()}' is a word of ours; say it in the field's words")

for command in {command[0] for command in commands(sys.argv[1]) if command}:
    page = root / "docs" / "commands" / f"{command}.md"
    if not page.exists():
        failures.append(f"tawpipe {command} has no page; write docs/commands/{command}.md, with a line in docs/commands.md")
    elif f"`tawpipe help {command}`" not in page.read_text() or f"commands/{command}.md" not in (root / "docs/commands.md").read_text():
        failures.append(f"docs/commands/{command}.md does not lead to its help, or docs/commands.md not to it")

for answer in re.split(r"^## ", (root / "docs/faq.md").read_text(), flags=re.M)[1:]:
    question, rest = answer.split("\n", 1)
    lines = [line for line in FENCE.sub("", rest).splitlines() if line.strip()]
    if not (2 <= len(lines) <= 5 and "](" in rest and re.search(r"^(\$ )?tawpipe ", rest, re.M)):
        failures.append(f"docs/faq.md: '{question}': two to five lines, a command and a link; it has {len(lines)} lines")

print("\n".join(failures) or f"{len(pages)} pages are as a reader may expect them")
sys.exit(1 if failures else 0)
