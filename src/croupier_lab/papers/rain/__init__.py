"""RAIN, sign votes that two servers shuffle and add, run again.

Robustness is measured in the clear (`clear_rounds`, `rules`, `baseline_rules`, `repeated_runs`), because a figure takes
thousands of trainings and the secure rule gives the same model bit for bit; `cost` runs the real servers;
`printed_forms` shows what fails as printed.
"""
