"""``python -m resispec_verify``, and the program ``resispec-verify``."""

import atexit
import os
import signal
import sys

from resispec_verify.cli.interrupts import INTERRUPTED, at_the_end


def run() -> int:
    """Run the command line in a process of its own; returns the exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, at_the_end)  # while `main` is imported, and after it
    from resispec_verify.cli import main

    status = main()
    if status == INTERRUPTED:
        # What was cut short may fail to be put away: nobody has asked about that.
        sys.unraisablehook = lambda dropped: None
        atexit._run_exitfuncs()
        os._exit(status)  # threads that compute on are not waited for
    return status


if __name__ == "__main__":
    sys.exit(run())
