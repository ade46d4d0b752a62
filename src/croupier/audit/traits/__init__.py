"""The experimenter's side of the questions `traits` and `linkage`: who is attacked, what is asked, and the truth."""
