"""What papers print, as experiments that anybody can run again."""

from collections.abc import Mapping

from croupier.papers import rns
from croupier.papers.entry import Entry

ENTRIES: Mapping[str, Entry] = {entry.name: entry for entry in rns.ENTRIES}
