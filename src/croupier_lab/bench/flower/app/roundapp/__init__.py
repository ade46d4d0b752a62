"""Federated averaging on handwritten digits, as an app of Flower's."""
