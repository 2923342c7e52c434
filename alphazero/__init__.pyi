from alphazero.base.errors import AlphaZeroError as AlphaZeroError
from alphazero.data.open import Store as Store
from alphazero.data.open import StoredGame as StoredGame
from alphazero.data.open import open_store as open_store
from alphazero.games.board import Board as Board
from alphazero.games.drawing import Style as Style
from alphazero.games.registry import game_names as game_names
from alphazero.play.net import Evaluation as Evaluation
from alphazero.play.net import Net as Net
from alphazero.play.net import load as load
from alphazero.play.net import new_net as new_net
from alphazero.run.overview import RunOverview as RunOverview
from alphazero.run.overview import list_runs as list_runs
from alphazero.search.snapshot import MoveReport as MoveReport
from alphazero.search.snapshot import Snapshot as Snapshot
from alphazero.search.tree_search import SearchLimits as SearchLimits
from alphazero.search.tree_search import TreeSearch as TreeSearch
from alphazero.search.tree_search import TreeSettings as TreeSettings
from alphazero.training.sources.batches import Batches as Batches
from alphazero.training.sources.batches import TrainingBatch as TrainingBatch

__version__: str
