"""What papers print, as figures that anybody can run again: a room for each paper, and one for what they share.

`rns`, `rain`, `intra` and `tazza` each export figures (`shared.figure.Figure`); `catalogue` lists them for
`croupier reproduce`. A figure runs at three scales, smoke, small and paper, and its result names every place where it
departs from the paper.
"""
