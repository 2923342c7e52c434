from alphazero.api.batches import Batches as Batches
from alphazero.api.batches import TrainingBatch as TrainingBatch
from alphazero.api.board import Board as Board
from alphazero.api.net import Evaluation as Evaluation
from alphazero.api.net import Net as Net
from alphazero.api.net import load as load
from alphazero.api.net import new_net as new_net
from alphazero.api.store import Store as Store
from alphazero.api.store import StoredGame as StoredGame
from alphazero.api.store import open_store as open_store
from alphazero.errors import AlphaZeroError as AlphaZeroError
from alphazero.games.drawing import Style as Style
from alphazero.games.registry import game_names as game_names
from alphazero.pipeline.run_overview import RunOverview as RunOverview
from alphazero.pipeline.run_overview import list_runs as list_runs
from alphazero.search.snapshot import Snapshot as Snapshot
from alphazero.search.tree_search import TreeSettings as TreeSettings

__version__: str
