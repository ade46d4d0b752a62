"""The command line as a program: `python -m croupier`, and the script `croupier`.

Python ends a process by taking apart whatever was imported, piece by piece; with torch that is a tenth of a small run.
Files are on disk before a command ends, because a run may be killed at any moment, so that this can be skipped:
`leave` ends the process at once. `croupier/__main__.py` and the installed script call `program`.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn

from croupier.cli import main


def program() -> NoReturn:
    """Run the command line, and end the process."""
    try:
        main()
    except SystemExit as end:
        leave(end.code)
        raise


def leave(status: object) -> None:
    """End the process at once, after what was said is out and what asked to be called at the end was called.

    Comes back where Python has to end it: other threads work, nobody reads, or the end is put in words.
    """
    others = set(threading.enumerate()) - {threading.main_thread()}
    if not isinstance(status, int | None) or not all(thread.daemon for thread in others):
        return
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(status or 0)
