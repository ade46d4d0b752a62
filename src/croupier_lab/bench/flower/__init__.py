"""Flower with and without protection (`croupier bench flower`): on a grid in this process, and on a real SuperLink."""
