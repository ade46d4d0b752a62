"""An audit's result for people: one page, lines of numbers, Markdown, and the comparison of two reports."""
