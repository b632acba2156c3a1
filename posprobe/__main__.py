"""``python -m posprobe``, and what the installed command runs."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType


def main() -> None:
    """Run the command line; a signal ends it in order from its first import to its last step."""

    def stop(number: int, _frame: FrameType | None) -> None:
        # Nothing has begun yet that would have to be removed.
        with suppress(OSError):
            os.write(2, b"posprobe: stopped.\n")
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    # What is drawn goes into files; a window's toolkit that is missing would end in an error.
    os.environ["MPLBACKEND"] = "agg"
    from posprobe.cli import main as run

    run()


if __name__ == "__main__":
    main()
