"""`python -m launcher` is `gpucost`."""

from launcher.cli import main

main()
