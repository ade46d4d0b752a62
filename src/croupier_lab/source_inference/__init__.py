"""Source inference as papers print it: defences by name, their runs from many seeds, and tables with a sentence each.

`experiment` runs it, `outcome` is what comes of it, and `table` makes rows. An audit asks the same of one description
by its own questions (`croupier.audit.questions.source`), whose attacks and scores are used here.
"""
