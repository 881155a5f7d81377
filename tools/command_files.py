#!/usr/bin/env python3
"""Writes what an installation has beside the command: completion for bash, zsh and fish, and a man page of each command where
help2man is installed. Usage: command_files.py TAWPIPE VERSION FOLDER (of share/)
"""
import pathlib
import shutil
import subprocess
import sys

from command_help import commands, help_of

tawpipe, version, folder = sys.argv[1:4]
folder = pathlib.Path(folder)
for shell, place in (("bash", "bash-completion/completions/tawpipe"), ("zsh", "zsh/vendor-completions/_tawpipe"),
                     ("fish", "fish/vendor_completions.d/tawpipe.fish")):
    file = folder / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(subprocess.run([tawpipe, "completion", shell], capture_output=True, text=True, check=True).stdout)
if shutil.which("help2man") is None:
    print("help2man is not installed: no man pages")
    sys.exit()
man = folder / "man" / "man1"
man.mkdir(parents=True, exist_ok=True)
for command in commands(tawpipe):
    what = help_of(tawpipe, command).splitlines()[0].rstrip(".")
    page = subprocess.run(["help2man", "--no-info", f"--version-string={version}", f"--name={what}", " ".join([tawpipe, *command])],
                          capture_output=True, text=True, check=True).stdout
    (man / ("-".join(["tawpipe", *command]) + ".1")).write_text(page)
