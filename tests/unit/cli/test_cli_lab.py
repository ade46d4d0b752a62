"""Without the laboratory the product still runs, and its two commands say what to install."""

from __future__ import annotations

from tests.forks import in_forks

# Which commands there are is settled when the command line is imported: matplotlib must be missing from the start.
HIDE = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "matplotlib" else found(name, package)
from croupier.cli import main
sys.argv = ["croupier", *{words!r}]
main()
"""
LABORATORY = (["reproduce"], ["reproduce", "rns/figure1", "--seeds", "3"], ["bench", "rns", "--json"])


def test_a_command_of_the_laboratory_says_what_to_install_and_help_names_them_all_the_same() -> None:
    *refused, helped = in_forks([HIDE.format(words=words) for words in (*LABORATORY, ["--help"])])
    for said in refused:
        assert "pip install 'croupier[lab]'" in said
        assert "matplotlib" in said
        assert said.endswith("exit 2\n")
        assert "Traceback" not in said
    assert "reproduce" in helped
    # What stands in brackets is no markup.
    assert helped.count("'croupier[lab]'") == 2
    assert "bench" in helped
    assert helped.endswith("exit 0\n")
