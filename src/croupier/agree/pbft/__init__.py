"""Practical Byzantine fault tolerance for one value: the digest of the seed that a head proposes for one round.

`agreement` is the form that `agree.seats` plays; `replica` is a participant, `views` the letters of one view and what a
new head must show, `votes` the signatures that prove what a quorum said.
"""
