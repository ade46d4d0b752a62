"""What the figures of all papers share: the value of a figure, and trainings over seeds.

`figure` is the value, `reproduce` runs one, `comparison` is how source inference is set against the paper's numbers,
and `trainings` trains whole federations once a seed.
"""
