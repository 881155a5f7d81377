"""What the command says of itself: its commands and their help. Not: a program."""
import re
import subprocess


def help_of(tawpipe, command=()):
    """The text of `tawpipe COMMAND --help`. command: a tuple of words"""
    return subprocess.run([tawpipe, *command, "--help"], capture_output=True, text=True, check=True).stdout


def commands(tawpipe):
    """Every command as a tuple of words, those below one right after it; first (), the program itself."""
    found = [()]
    for command in found:
        part = re.search(r"^Commands:\n((?:  .*\n)+)", help_of(tawpipe, command), re.MULTILINE)
        at = found.index(command) + 1
        found[at:at] = [(*command, line.split()[0]) for line in part.group(1).splitlines() if re.match(r"  \S", line)] if part else []
    return found
