"""The attacks' process ends with the one that asks it, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

BUSY = "import os, threading, time; from croupier.audit.blind import end_with; "
BUSY += "threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start(); print(os.getpid(), flush=True); "
BUSY += "time.sleep(600)"


def is_there(process: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_nobody_goes_on_for_a_parent_that_was_killed() -> None:
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_there(child)
        parent.send_signal(signal.SIGKILL)
    end = time.monotonic() + 60
    while is_there(child) and time.monotonic() < end:
        time.sleep(0.1)
    assert not is_there(child)
