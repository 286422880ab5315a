"""What a batch, a step and a recomputation cost, and what is known of an output length."""
