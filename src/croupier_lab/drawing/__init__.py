"""Pictures of what the laboratory finds, drawn by matplotlib as SVG text: the same rows give the same bytes.

`canvas` is the sheet; `lines`, `points` and `pictures` are the three kinds of figures that papers here have, and
`curves` compares runs. A figure's module hands over rows, and the picture shows nothing that is not in them.
"""
