"""RAIN, sign votes that two servers shuffle and add, run again.

Robustness is measured in the clear (`clear_rounds`, `rules`, `baseline_rules`, `repeated_runs`), because a figure takes
thousands of trainings; tests show that the two servers give what the rule gives in the clear. `robustness` has Figures
3 to 5, `malicious_shares` Figure 6, `server_rate` the choice of the server's rate. `cost` runs the real servers, and
`printed_forms` and `noised_signs` show what fails as printed.
"""
