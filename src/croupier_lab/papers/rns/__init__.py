"""RNS: Protection against Source Inference Attacks in Federated Learning (ICLR 2026), run again.

Docstrings of this room also call it the source-inference paper. `source_inference` has the attack figures, `inversion`
Figure 8, `accuracy` and `dp_sgd` what training through residues gives, `cost` and `bits_per_parameter` what it takes,
`mixnets` and `printed_mixnet` its mix networks.
"""
