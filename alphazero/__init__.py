"""alphazero: train AlphaZero-class networks with DeepSpeed; then play, measure and share them.

As a library: `import alphazero as az` (docs/python.md). What it offers is imported when it is first asked
for, so that the import itself is quick and needs no torch; __init__.pyi tells type checkers of it.
"""

import importlib as _importlib

__version__ = "0.2.0"  # CHANGELOG.md says what each one brought; pyproject.toml reads it here

# Where each name that the package offers is found.
_HOMES = {
    "AlphaZeroError": "alphazero.base.errors",
    "Batches": "alphazero.training.sources.batches",
    "Board": "alphazero.games.board",
    "Evaluation": "alphazero.play.net",
    "MoveReport": "alphazero.search.snapshot",
    "Net": "alphazero.play.net",
    "SearchLimits": "alphazero.search.tree_search",
    "Snapshot": "alphazero.search.snapshot",
    "Store": "alphazero.data.open",
    "StoredGame": "alphazero.data.open",
    "Style": "alphazero.games.drawing",
    "TrainingBatch": "alphazero.training.sources.batches",
    "TreeSearch": "alphazero.search.tree_search",
    "TreeSettings": "alphazero.search.tree_search",
    "RunOverview": "alphazero.run.overview",
    "game_names": "alphazero.games.registry",
    "list_runs": "alphazero.run.overview",
    "load": "alphazero.play.net",
    "new_net": "alphazero.play.net",
    "open_store": "alphazero.data.open",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'alphazero' has no attribute {name!r}")
    value: object = getattr(_importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
