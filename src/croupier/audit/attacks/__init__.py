"""Attacks by topic, each a pure function of what is known and of what is asked; `audit.blind` says how they run."""
