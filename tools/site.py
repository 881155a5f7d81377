#!/usr/bin/env python3
"""Builds the documentation as a site that opens offline: README.md and docs/ as they are, each example with its output, and a
reference of all commands, made from what they say of themselves. Needs Debian's mkdocs and mkdocs-material.
Not: what the pages say. Usage: site.py TAWPIPE OUT_FOLDER; ends with 77 where MkDocs is not installed
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from command_help import commands, help_of

root = pathlib.Path(__file__).resolve().parent.parent
tawpipe, out = sys.argv[1:3]

# In the order of reading; a page of docs/ that is missing here is an error.
PAGES = {
    "Start": ["quick_start", "plan", "output", "topology", "models", "glossary"],
    "Schedules": ["schedules", "pipelines", "sharded", "sweeps"],
    "Trust": ["accuracy", "validation", "performance"],
    "Training": ["training", "layers", "checkpoints", "mpi", "gpu", "gpu_running"],
    "With others": ["python", "pytorch", "hangs", "interchange", "chakra", "frameworks", "task_graphs"],
    "Inside": ["architecture", "building"],
}


def command_reference():
    text = "# Commands\n\nWhat `tawpipe help COMMAND` says.\n"
    for command in commands(tawpipe):
        text += f"\n## {' '.join(['tawpipe', *command])}\n\n```text\n{help_of(tawpipe, command).strip()}\n```\n"
    return text


def examples():
    text = "# Examples\n\nEach is compiled and run by the tests; what it prints stands below it.\n"
    for source in sorted((root / "examples").glob("*.cpp")):
        code = source.read_text()
        title = code.splitlines()[0].removeprefix("// ").rstrip(".")
        printed = (source.parent / f"{source.stem}.expected.txt").read_text()
        text += f"\n## {source.stem}\n\n{title}.\n\n```cpp\n{code}```\n\n```text\n{printed}```\n"
    return text


def linked(text):
    """The text with links that lead to pages of the site; those to other files of the repository become their names."""
    text = re.sub(r"\]\(docs/", "](", text)
    text = re.sub(r"\[([^\]]*)\]\(examples\)", r"[\1](examples.md)", text)
    return re.sub(r"\[([^\]]*)\]\((?:\.\./|(?:examples|CONTRIBUTING|bench|tests)\b)[^)]*\)", r"\1", text)


def main():
    if subprocess.run(["sh", "-c", "command -v mkdocs"], capture_output=True).returncode != 0:
        print("MkDocs is not installed; Debian's packages mkdocs and mkdocs-material have it")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        pages = pathlib.Path(folder) / "pages"
        pages.mkdir()
        names = [name for group in PAGES.values() for name in group]
        for page in sorted((root / "docs").glob("*.md")):
            if page.stem not in names:
                sys.exit(f"docs/{page.name} has no place in the site; give it one in tools/site.py")
            (pages / page.name).write_text(linked(page.read_text()))
        if (root / "docs" / "pictures").is_dir():
            shutil.copytree(root / "docs" / "pictures", pages / "pictures")
        (pages / "index.md").write_text(linked((root / "README.md").read_text()))
        (pages / "commands.md").write_text(command_reference())
        (pages / "examples.md").write_text(examples())
        lines = ["site_name: tawpipe", "docs_dir: pages", f"site_dir: {pathlib.Path(out).resolve()}", "use_directory_urls: false",
                 "theme:", "  name: material", "  font: false", "  features: [navigation.sections, navigation.top]", "  palette:",
                 "    - {media: '(prefers-color-scheme: light)', scheme: default, toggle: {icon: material/weather-night, name: Dark}}",
                 "    - {media: '(prefers-color-scheme: dark)', scheme: slate, toggle: {icon: material/weather-sunny, name: Light}}",
                 "markdown_extensions: [admonition, tables, fenced_code, {toc: {permalink: true}}]", "nav:", "  - index.md"]
        for group, group_pages in PAGES.items():
            lines.append(f"  - {group}:")
            lines += [f"      - {name}.md" for name in group_pages if (pages / f"{name}.md").exists()]
            lines += ["      - commands.md", "      - examples.md"] if group == "Start" else []
        config = pathlib.Path(folder) / "mkdocs.yml"
        config.write_text("\n".join(lines) + "\n")
        return subprocess.run(["mkdocs", "build", "--strict", "--quiet", "--config-file", config]).returncode


sys.exit(main())
