"""Benches of the services: faults to survive (`faults`), bytes to refuse (`fuzz`), many letters at once (`load`)."""
