"""`python -m croupier` is `croupier`: for environments whose scripts are not on the path."""

from croupier.cli.program import program

program()
