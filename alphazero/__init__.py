"""AlphaZero-class networks: trained on one CPU or many GPU nodes, then played, measured and shared."""
