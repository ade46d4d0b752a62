"""IntraShuffler, every coordinate shuffled among the clients of a tier, run again.

`attack_*` run the three-stage attack (settings, tables, figures, sentences), `utility*` the trainings under noise;
`cost`, `recombination` and `same_model` are single tables; `protocols` and `tasks` are what all of them train.
"""
