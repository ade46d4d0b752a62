"""What the figures of all papers share: the value of a figure, and trainings over seeds."""
