"""Entry point of ``python -m posprobe`` and of the installed command."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType


def main() -> None:
    """Run the command line; a signal ends it cleanly from the first import to the last step."""

    def stop(signal_number: int, _frame: FrameType | None) -> None:
        # No files have been written yet that would have to be removed.
        with suppress(OSError):
            os.write(2, b"posprobe: stopped.\n")
        os._exit(128 + signal_number)

    for signal_number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(signal_number) is not signal.SIG_IGN:
            signal.signal(signal_number, stop)
    # Figures go into files; a backend with windows would fail where its toolkit is missing.
    os.environ["MPLBACKEND"] = "agg"
    from posprobe.cli import main as run

    run()


if __name__ == "__main__":
    main()
