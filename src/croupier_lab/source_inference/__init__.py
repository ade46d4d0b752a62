"""Source inference as papers print it: defences by name, their runs from many seeds, and tables with a sentence each.

An audit asks the same of one description by its own questions (`croupier.audit.questions.source`), whose attacks and
scores are used here.
"""
