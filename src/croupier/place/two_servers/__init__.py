"""RAIN's placement: two servers and a dealer shuffle, score and sum rows of signs that none of them can read.

`pair` is the part, with the client's and the dealer's flow; `server_flow` is what both servers play; `messages` is all
that they say. `scoring` computes distances and sums on shares, `shuffle_check` and `cut_and_choose` catch a malicious
server or dealer. `shuffles` and `shuffle_flows` are other ways to shuffle, `pooled` what parties read that break the
rules together. The building blocks are in `mpc/`.
"""
