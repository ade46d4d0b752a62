"""RAIN's placement: two servers, helped by a dealer, shuffle, score and sum rows of signs that none of them can read.

`pair` is the part, with the dealer's flow; `client_flow` is what clients play and `server_flow` what both servers play;
`messages` is all that they say, and `words` what the statement says of them. `scoring` computes distances and sums on
shares, `shuffle_check` and `cut_and_choose` catch a malicious server or dealer. `shuffles` and `shuffle_flows` are
other ways to shuffle, `pooled` what parties read that break the rules together. The building blocks are in `mpc/`.
"""
