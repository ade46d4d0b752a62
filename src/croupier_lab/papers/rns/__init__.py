"""Protection against Source Inference Attacks in Federated Learning (ICLR 2026), run again."""
