"""Attacks by topic, each a pure function of bytes: what they know, and what they are asked. See `audit.blind`."""
