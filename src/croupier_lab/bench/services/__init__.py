"""Benches of the services: faults to survive (`faults`), bytes to refuse (`fuzz`), and letters a second (`load`)."""
