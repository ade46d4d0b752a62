"""What the figures of all papers share: the value of a figure, and trainings over seeds.

`figure` is the value, `reproduce` runs one, `comparison` sets source inference against the paper's numbers, `claim` is
the value of a claim, and `trainings` trains whole federations once a seed.
"""
