"""Rules by which the server turns what was released into its next model: means, medians, and robust rules of papers.

`aggregator` is the slot that a description fills under `protocol.aggregate`. Many a rule is written twice over: a plain
function on stacked rows (`krum(rows, f)`, `fltrust(rows, root)`), which the laboratory calls directly, and a small part
that brings rows to it and the direction to the model (`robust`). `rows` has the arithmetic that they share, `step` what
the server makes of a mean.

Files are by idea and not by paper: `geometry`, `spectral`, `reference`, `reputation`, `latent`, `cluster`, `clusters`.
"""
