"""IntraShuffler, every coordinate shuffled among the clients of a bucket, run again.

`attack_*` run the three-stage attack (settings, tables, figures, sentences), `utility*` the trainings under noise.
`cost` is Table 7 and `recombination` Table 6; `same_model` shows for the tables of utility that a release changes no
mean. `protocols` and `tasks` say how and on what all of them train.
"""
