"""A small attention body, from which tests make theirs."""

from alphazero.settings.sections import NetworkConfig

SMALL_ATTENTION = NetworkConfig(
    body="attention",
    policy_head="attention",
    blocks=2,
    filters=16,
    heads=2,
    ffn_width=24,
    smolgen_channels=2,
    smolgen_hidden=8,
    smolgen_size=4,
    embedding_width=4,
)
