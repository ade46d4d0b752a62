"""A description run in a directory: started, resumed, timed beforehand, and left behind as a result.

`run` is what `croupier.run` and `croupier.resume` call; `job` plays and writes, `resume` compares and goes on,
`manifest` is what a run began with, `result` what it leaves; `trial` plays a little of it for `croupier plan`.
"""
