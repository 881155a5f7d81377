#!/usr/bin/env python3
"""Builds the documentation as a site that opens offline: README.md and docs/ as they are, a page a schedule, a page a command with
what it says of itself, each example with its output, and a reference of the library, made from its headers. Needs Debian's mkdocs and
mkdocs-material.
Not: what the pages say. Usage: site.py TAWPIPE OUT_FOLDER; ends with 77 where MkDocs is not installed
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import api_pages
from command_help import commands, help_of

root = pathlib.Path(__file__).resolve().parent.parent
tawpipe, out = sys.argv[1:3]
narrow = {**os.environ, "COLUMNS": "100", "LC_ALL": "C.UTF-8"}

# In the order of reading; a page of docs/ that is missing here is an error.
PAGES = {
    "Start": ["quick_start", "tutorial", "concepts", "roles", "faq", "building"],
    "Use": ["commands", "plan", "frameworks", "run_cost", "bounds", "sweeps", "topology", "models", "costs", "output", "serve", "hangs", "what_if"],
    "Trust": ["how_sure", "accuracy", "accuracy_experts", "accuracy_memory", "accuracy_paper", "calibration", "validation", "performance"],
    "Schedules": ["schedules", "weight_pipelines", "pipelines", "sharded", "mesh", "searched_orders"],
    "Train": ["training", "layers", "checkpoints", "mpi", "gpu", "gpu_running"],
    "Program": ["python", "embedding", "pytorch", "interchange", "chakra", "task_graphs", "search_space", "model_work", "architecture"],
    "Reference": ["glossary"],
}


def command_pages():
    """{name: Markdown} of all commands: their pages of docs/commands/ and what `tawpipe help` says of them."""
    found = {}
    for page in sorted((root / "docs" / "commands").glob("*.md")):
        text = re.sub(r"\]\((\w[\w-]*)\.md", r"](command-\1.md", page.read_text()).replace("](../", "](")  # siblings first
        for command in commands(tawpipe):
            if command and command[0] == page.stem:
                text += f"\n## {' '.join(['help', *command])}\n\n```text\n{help_of(tawpipe, command).strip()}\n```\n"
        found[page.stem] = text
    return found


def examples():
    text = "# Examples\n\nEach is compiled and run by the tests; what it prints stands below it.\n"
    for source in sorted((root / "examples").glob("*.cpp")):
        code = source.read_text()
        title = code.splitlines()[0].removeprefix("// ").rstrip(".")
        printed = (source.parent / f"{source.stem}.expected.txt").read_text()
        text += f"\n## {source.stem}\n\n{title}.\n\n```cpp\n{code}```\n\n```text\n{printed}```\n"
    return text


def section_with(picture):
    """(page, text) of the section of docs/ that shows the picture, without its heading."""
    for page in sorted((root / "docs").glob("*.md")):
        if page.stem == "concepts":
            continue
        text = page.read_text()
        at = text.find(f"(pictures/{picture}.svg)")
        if at < 0:
            continue
        heading = [found for found in re.finditer(r"^(#+) .*\n", text, re.MULTILINE) if found.start() < at][-1]
        rest = text[heading.end():]
        end = re.search(rf"^#{{1,{len(heading.group(1))}}} ", rest, re.MULTILINE)
        return page, rest[:end.start() if end else len(rest)].strip()
    return None, ""


def schedule_pages():
    """{name: Markdown} of all schedules: the picture, who it is from, what docs/ says of it, its options."""
    listed = subprocess.run([tawpipe, "list", "schedules", "--json", "-"], capture_output=True, text=True, check=True).stdout
    found = {}
    for one in json.loads(listed):
        name = one["name"]
        page, section = section_with(name)
        text = f"# {name}\n\n![{name}](pictures/{name}.svg)\n\n{one['description'].capitalize()}. Source: {one['source']}.\n"
        # A section of several schedules stands on its own page; one of this schedule alone stands here.
        if section.count("](pictures/") <= 2:
            section = re.sub(rf"!\[[^\]]*\]\(pictures/{re.escape(name)}\.svg\)\n*", "", section)
            text += f"\n## What it does\n\n{section}\n"
        text += f"\nMore, with closed forms and its relatives: [{page.stem}]({page.name}).\n"
        explained = subprocess.run([tawpipe, "explain", name], capture_output=True, text=True, check=True, env=narrow).stdout
        text += f"\n## In the terminal\n\n```text\n$ tawpipe explain {name}\n{explained.strip()}\n```\n"
        found[name] = text
    return found


def gallery(names):
    cells = "".join(f'<a href="schedule-{name}.html" title="{name}"><img src="pictures/{name}.svg" alt="{name}" loading="lazy">'
                    f"<span>{name}</span></a>" for name in names)
    return f"# All schedules\n\nEach with its page. `tawpipe list schedules` lists them.\n\n<div class=\"gallery\">{cells}</div>\n"


STYLE = """.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1rem; }
.gallery a { border: 1px solid var(--md-default-fg-color--lightest); border-radius: 6px; padding: .5rem; color: inherit; }
.gallery img { width: 100%; height: 8rem; object-fit: contain; background: #fff; } .gallery span { display: block; text-align: center; }
.md-grid { max-width: 76rem; } .md-typeset img { background: #fff; } .md-typeset table:not([class]) { font-size: .68rem; }
.md-typeset pre > code { font-size: .7em; }
"""


# Into each page, before the theme's own script.
MAIN = """{% extends "base.html" %}
{% block config %}{{ super() }}<script src="{{ 'site_search.js' | url }}"></script>{% endblock %}
"""


def linked(text):
    """The text with links that lead to pages of the site; those to other files of the repository become their names."""
    text = re.sub(r"\]\(docs/", "](", text)
    text = re.sub(r"\]\(commands/", "](command-", text)
    text = re.sub(r"\[([^\]]*)\]\(examples\)", r"[\1](examples.md)", text)
    text = re.sub(r"\[([^\]]*)\]\((?:\.\./)?examples/(\w+)\.cpp\)", r"[\1](examples.md#\2)", text)
    return re.sub(r"\[([^\]]*)\]\((?:\.\./|(?:examples|CONTRIBUTING|bench|tests)\b)[^)]*\)", r"\1", text)


def guide_first(folder):
    """The index of the search, as JSON and as a script: titles count most, so those of the library's reference get its name in one
    word with theirs, and pages for reading are found before them."""
    index = json.loads((folder / "search_index.json").read_text())
    for section in index["docs"]:
        if section["location"].startswith("api-"):
            section["title"] = f"tawpipe::{section['title']}"
    text = json.dumps(index)
    (folder / "search_index.json").write_text(text)
    (folder / "search_index.js").write_text(f"__search_index({text});\n")


def main():
    if subprocess.run(["sh", "-c", "command -v mkdocs"], capture_output=True).returncode != 0:
        print("skipped: MkDocs is not installed; on Debian: apt-get install mkdocs mkdocs-material")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        pages = pathlib.Path(folder) / "pages"
        pages.mkdir()
        names = [name for group in PAGES.values() for name in group]
        for page in sorted((root / "docs").glob("*.md")):
            if page.stem not in names:
                sys.exit(f"docs/{page.name} has no place in the site; give it one in tools/site.py")
            (pages / page.name).write_text(linked(page.read_text()))
        for folder_of_pictures in ("pictures", "screenshots"):
            shutil.copytree(root / "docs" / folder_of_pictures, pages / folder_of_pictures)
        (pages / "index.md").write_text(linked((root / "README.md").read_text()))
        of_commands = command_pages()
        for name, text in of_commands.items():
            (pages / f"command-{name}.md").write_text(linked(text))
        (pages / "examples.md").write_text(examples())
        (pages / "site.css").write_text(STYLE)
        shutil.copy(root / "tools" / "site_search.js", pages)
        theme = pathlib.Path(folder) / "theme"
        theme.mkdir()
        (theme / "main.html").write_text(MAIN)
        of_schedules, of_rooms = schedule_pages(), api_pages.pages()
        (pages / "gallery.md").write_text(gallery(of_schedules))
        for name, text in of_schedules.items():
            (pages / f"schedule-{name}.md").write_text(linked(text))
        for room, text in of_rooms.items():
            (pages / f"api-{room}.md").write_text(text)
        lines = ["site_name: tawpipe", "docs_dir: pages", f"site_dir: {pathlib.Path(out).resolve()}", "use_directory_urls: false",
                 "theme:", "  name: material", "  custom_dir: theme", "  font: false", "  features: [navigation.tabs, navigation.top, navigation.indexes, search.highlight, toc.follow]", "  palette:",
                 "    - {media: '(prefers-color-scheme: light)', scheme: default, toggle: {icon: material/weather-night, name: Dark}}",
                 "    - {media: '(prefers-color-scheme: dark)', scheme: slate, toggle: {icon: material/weather-sunny, name: Light}}",
                 "extra_css: [site.css]", "markdown_extensions: [admonition, tables, fenced_code, {codehilite: {css_class: highlight, guess_lang: false}}, {toc: {permalink: true, toc_depth: 3}}]",
                 "nav:", "  - index.md"]
        for group, group_pages in PAGES.items():
            lines.append(f"  - {group}:")
            lines += [f"      - {name}.md" for name in group_pages if (pages / f"{name}.md").exists()]
            if group == "Schedules":
                lines += ["      - gallery.md", "      - Each:", *(f"          - schedule-{name}.md" for name in of_schedules)]
            if group == "Use":
                lines += ["      - Each command:", *(f"          - {name}: command-{name}.md" for name in of_commands)]
            lines += ["      - examples.md"] if group == "Program" else []
            if group == "Reference":
                lines += ["      - Library:", *(f"          - {room}: api-{room}.md" for room in of_rooms)]
        config = pathlib.Path(folder) / "mkdocs.yml"
        config.write_text("\n".join(lines) + "\n")
        done = subprocess.run(["mkdocs", "build", "--strict", "--config-file", config], capture_output=True, text=True)
        print("\n".join(line for line in done.stderr.splitlines() if done.returncode and not line.startswith("INFO")))
        if done.returncode == 0:
            guide_first(pathlib.Path(out) / "search")
        return done.returncode


sys.exit(main())
