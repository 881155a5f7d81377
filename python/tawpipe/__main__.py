"""`python -m tawpipe` is the command `tawpipe`."""

from ._program import main

main()
