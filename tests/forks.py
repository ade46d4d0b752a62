"""Programs that begin where nothing of Croupier is imported yet, without a start of Python for each.

One process imports what others wrote (torch takes longest), and a fork of it runs each program.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

# Errors go where the output goes, so that nothing that a program says is lost.
RUN = """
import json, os, sys, traceback
import torch, numpy, numba, sklearn, scipy, cryptography

for program in json.loads(sys.argv[1]):
    print("----", flush=True)
    if not (child := os.fork()):
        sys.stderr = sys.stdout
        try:
            exec(program, {"__name__": "__main__"})
        except SystemExit as end:
            print("exit", end.code)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""


def in_forks(programs: Sequence[str]) -> list[str]:
    """Run programs; what each of them prints, and the status where it ends by one."""
    command = [sys.executable, "-c", RUN, json.dumps(programs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split("----\n")[1:]
