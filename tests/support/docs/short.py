"""How a documented command becomes a short one: the same command with less to do.

Only amounts of work change: steps, games, simulations, positions, processes. All else is as on the page.
"""

from collections.abc import Sequence

# Values that replace those of the page, whatever the command.
AMOUNTS = {
    "--simulations": "4",
    "--seconds": "0.2",
    "--nodes": "4",
    "--games": "2",
    "--gpus": "2",
    "--world-size": "2",
    "--nproc_per_node": "2",
    "--pretraining-steps": "1",
}
TRAINING = (
    *("--device", "cpu", "--batch-size", "16", "--micro-batch-size", "8"),
    *("--validation-interval", "2", "--validation-positions", "16", "--checkpoint-interval", "2"),
    *("--log-interval", "1"),
)
SUPERVISED = ("--steps", "2")
SELF_PLAY = (
    *("--generations", "1", "--steps-per-generation", "2", "--lanes", "4", "--simulations-per-round", "100"),
    *("--simulations", "2", "--evaluation-batch", "4", "--opening-plies", "4", "--max-plies", "8"),
    *("--window-minimum", "16"),
)
SMALL_NETWORK = ("--blocks", "2", "--filters", "16")  # instead of the presets for GPUs
# Appended to a command of this name; the last value of a flag counts.
APPENDED: dict[str, tuple[str, ...]] = {
    "eval": ("--positions", "32", "--device", "cpu"),
    "match": ("--games", "2", "--maxmoves", "4", "--device", "cpu"),
    "rate": ("--games", "2", "--simulations", "1", "--device", "cpu"),
}
# What takes several seconds even so is run in the slow tier alone: commands with all of these words.
SLOW_ALONE = (
    ("rate",),
    ("export", "onnx"),
    ("eval", "--solved", "--simulations"),
    ("--config", "chess_20x256"),
)
# The same for what Python blocks say.
PYTHON = {"simulations=800": "simulations=4", "batch_size=256": "batch_size=8"}
FROM_ZERO = ("connect4", "othello", "chess_10x128", "selfplay", "mixed")
FOR_GPUS = ("chess_20x256", "chess_10x128")


def shortened(command: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of `alphazero COMMAND` with the amounts of a test."""
    short = with_amounts(arguments)
    if command in ("train", "launch"):
        short += TRAINING
        if not {"--precision", "--mixed-precision"} & set(short):  # a preset may have the precision measured
            short += ("--precision", "fp32")
        short += SELF_PLAY if any(word in FROM_ZERO for word in short) else SUPERVISED
        if any(preset in short for preset in FOR_GPUS):
            short += SMALL_NETWORK
    if "--solved" in short:  # solves fewer by its own flag
        return [*short, "--device", "cpu"]
    return [*short, *APPENDED.get(command, ())]


def is_slow(arguments: Sequence[str]) -> bool:
    """Whether the fast tier leaves `alphazero ARGUMENTS` out."""
    return any(set(words) <= set(arguments) for words in SLOW_ALONE)


def with_amounts(arguments: Sequence[str]) -> list[str]:
    """The arguments with smaller amounts: `--flag value` and `--flag=value`."""
    short = list(arguments)
    for index, argument in enumerate(short):
        flag, equals, _ = argument.partition("=")
        if flag in AMOUNTS and equals:
            short[index] = f"{flag}={AMOUNTS[flag]}"
        elif flag in AMOUNTS and index + 1 < len(short):
            short[index + 1] = AMOUNTS[flag]
    return short


def shortened_python(text: str) -> str:
    """A Python block with the amounts of a test."""
    for amount, smaller in PYTHON.items():
        text = text.replace(amount, smaller)
    return text
