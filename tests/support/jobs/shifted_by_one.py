"""train_distributed.py with every global batch shifted by one sample: what the rank test must notice."""

import sys

from alphazero.cli.main import entry_point
from alphazero.data.sampling import loader

original = loader.sample_ids


def shifted(seed: int, step: int, batch_size: int, num_samples: int):
    """Batch `step` begins one sample late."""
    pair = [original(seed, number, batch_size, num_samples) for number in (step, step + 1)]
    return loader.np.concatenate(pair)[1 : batch_size + 1]


if __name__ == "__main__":
    loader.sample_ids = shifted
    entry_point(["train", *sys.argv[1:]])
