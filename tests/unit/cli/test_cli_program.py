"""The program ends at once, and only then: nothing that was said, asked for or begun is lost."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENDS = """
import atexit, sys, threading, time
import croupier.cli.program as program

class Held:
    def __del__(self):
        print("taken apart", flush=True)

def main():
    print("said", end=" ")
    print("told", end=" ", file=sys.stderr)
    atexit.register(print, "called", end=" ")
    global held
    held = Held()
    {more}
    sys.exit({status})

program.main = main
program.program()
"""


def ended(status: str, more: str = "pass") -> tuple[int, str, str]:
    program = ENDS.format(status=status, more=more)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("status", ["0", "2", "None"])
def test_what_was_said_comes_out_and_nothing_is_taken_apart(status: str) -> None:
    assert ended(status) == (int(status.replace("None", "0")), "said called ", "told ")


def test_threads_are_waited_for() -> None:
    late = "threading.Thread(target=lambda: (time.sleep(0.2), print('late', end=' '))).start()"
    code, said, _ = ended("3", late)
    assert code == 3
    assert "late" in said
    assert "taken apart" in said, "Python ended it"
    code, said, _ = ended("3", "threading.Thread(target=time.sleep, args=[60], daemon=True).start()")
    assert (code, said) == (3, "said called ")


def test_an_end_in_words_is_pythons() -> None:
    code, said, told = ended("'not so'")
    assert code == 1
    assert "called" in said
    assert told.endswith("not so\n")


def test_nobody_reads() -> None:
    """As with `croupier doctor | head -1`: Python says so in its status, as ever."""
    program = ENDS.format(status="0", more="time.sleep(0.5)")
    called = f"{sys.executable} -c '{program.replace(chr(39), chr(34))}'"
    reading = f"env -u PYTHONUNBUFFERED {called} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", reading], capture_output=True, text=True, check=False)
    assert done.returncode == 120
    assert "BrokenPipeError" in done.stderr


def test_the_module_and_the_script_are_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "croupier", "run", "--nope"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "No such option '--nope'" in done.stderr
