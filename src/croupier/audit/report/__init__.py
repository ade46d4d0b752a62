"""An audit's result for people: one page, lines of numbers, Markdown, and the comparison of two reports.

`result` is the value that an audit returns; `read` is how everything else here looks at its plain values. `html`, with
the templates beside it, draws the page, `text` the spreadsheet and the Markdown, `compare` says what changed. Nothing
is computed that is not in the values already.
"""
