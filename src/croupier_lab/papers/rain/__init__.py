"""RAIN, sign votes that two servers shuffle and add, run again."""
