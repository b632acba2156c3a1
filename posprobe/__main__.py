"""``python -m posprobe`` is the command ``posprobe``."""

from posprobe.cli import main

main()
