"""The program `tawpipe` of this installation: the command of a wheel is main(), which becomes that program.
Not: a command of its own; exit codes, signals and output are the program's."""

import os
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "tawpipe")


def main():
    os.execv(PROGRAM, ["tawpipe", *sys.argv[1:]])
