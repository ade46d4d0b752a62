"""Agreement on a rule under random faults: what goes wrong, what it costs, what is lost."""
