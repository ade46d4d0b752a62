"""Protection against Source Inference Attacks in Federated Learning (ICLR 2026), run again.

`source_inference` has the attack figures, `inversion` Figure 8, `accuracy` and `dp_sgd` what training through residues
gives, `cost` and `bits_per_parameter` what it takes.
"""
