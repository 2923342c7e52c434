"""The UCI engine: commands in order and their answers; other threads read, search and load networks."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import IO, TypeAlias

import alphazero._core as _core
from alphazero.base.errors import AlphaZeroError, ConfigError, GameInputError, WeightsError
from alphazero.base.text import escaped, reason
from alphazero.games.core_types import Line
from alphazero.games.registry import CHESS, make_line
from alphazero.games.tablebases import Tablebases
from alphazero.play.uci.levels import Levels
from alphazero.play.uci.options import ELO, LIMITS_STRENGTH, TABLE, Options
from alphazero.play.uci.protocol import (
    Go,
    Parsed,
    Plain,
    SetOption,
    SetPosition,
    info_string,
    parse,
    read_move,
)
from alphazero.play.uci.search import FIRST_EVALUATION_S, EngineSearch
from alphazero.search.batched import Evaluator
from alphazero.search.tables import SearchTables
from alphazero.search.tree_search import TreeSearch, TreeSettings


@dataclass(frozen=True)
class NetworkRequest:
    """Which network to load, and how to compute it. threads, minibatch_size: 0 is automatic."""

    weights: str
    threads: int
    minibatch_size: int


@dataclass(frozen=True)
class LoadedNetwork:
    """A network that evaluates positions of its game, and one line about it."""

    evaluator: Evaluator
    description: str
    game: str = CHESS


# Loads a network. Raises AlphaZeroError for one that cannot be used.
OpenNetwork: TypeAlias = Callable[[NetworkRequest], LoadedNetwork]
# What was measured of the network that a name refers to. Raises AlphaZeroError.
FindLevels: TypeAlias = Callable[[str], Levels | None]

LONGEST_LINE = 2**20
STOP = Plain("stop")
NO_POSITION = "no position: the last one was refused"
LAST_ANSWER_S = 1.0  # that `quit` waits for the answer, beside its evaluation
TABLES, FIFTY_MOVES = "SyzygyPath", "Syzygy50MoveRule"
NETWORK_OPTIONS = ("WeightsFile", "Threads", "MinibatchSize")


class UciEngine:
    """Answers commands until `quit` or the end of the input.

    open_network loads a network, find_levels finds what was measured of it; `weights` names the first one.
    run() handles the commands, each in its turn: a script that comes all at once is answered as if each line
    had waited for the answer before it. Other threads read them, search, load networks and send lines.
    """

    def __init__(
        self,
        identity: str,
        weights: str,
        open_network: OpenNetwork,
        write: Callable[[str], None],
        given: Mapping[str, str] | None = None,
        find_levels: FindLevels = lambda weights: None,
    ) -> None:
        self.options = Options(given)
        self._identity = identity
        self._weights = weights
        self._write = write
        self._writing = threading.RLock()
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()  # what other threads have done for them
        self._lines: deque[Parsed | None] = deque()  # whose turn has not come; None is the end of the input
        # Programs expect lines of text during a search alone: the next one begins with these.
        self._remarks = list(self.options.remarks)
        self._open_network, self._find_levels = open_network, find_levels
        self._levels = self._levels_of(weights)
        self._strength = ""  # the last line about it
        self._is_loading = False
        self._requested: NetworkRequest | None = None  # the newest, unless it failed
        self._network: LoadedNetwork | None = None
        self._network_weights = weights
        self._line: Line | None = None  # none before there is a network, and where the last one was refused
        self._search: EngineSearch | None = None  # in progress
        self._tables = self._open_tables(self.options)
        self._tree: TreeSearch | None = None
        self._tree_of: tuple[LoadedNetwork, SearchTables | None] | None = None  # what the tree was made with
        self._forget_first = False

    def run(self, lines: IO[bytes]) -> int:
        """Serve; returns the exit status. Raises AlphaZeroError where the first network cannot be used."""
        self._load()
        threading.Thread(target=self._read, args=(lines,), name="commands", daemon=True).start()
        while (line := self._next()) is not None and self._obey(line):
            pass
        self._stop()
        self._wait_for_answer()
        return 0

    def _read(self, lines: IO[bytes]) -> None:
        is_cut = False  # the rest of a line that is ignored follows
        while raw := lines.readline(LONGEST_LINE):
            is_whole = raw.endswith(b"\n") or len(raw) < LONGEST_LINE
            if is_whole and not is_cut:
                self._inbox.put(partial(self._take_line, raw.decode("utf-8", "replace")))
            elif is_whole:
                self._send([info_string(f"ignored a line of more than {LONGEST_LINE:,} bytes")])
            is_cut = not is_whole
        self._inbox.put(partial(self._take_line, None))

    def _next(self) -> Parsed | None:
        """The next line, once its turn has come."""
        while not self._lines or self._must_wait(self._lines[0]):
            self._inbox.get()()
        return self._lines.popleft()

    def _must_wait(self, line: Parsed | None) -> bool:
        """For a network that is being loaded, or a search that ends by itself."""
        is_ending = self._search is not None and self._search.ends_by_itself
        if line is None:
            return is_ending
        if isinstance(line.command, SetPosition):
            return self._network is None  # which says which game it is
        if line.command == Plain("isready"):  # during a search it is answered at once
            return self._is_loading and self._search is None
        if isinstance(line.command, SetOption):
            return self._is_loading
        return isinstance(line.command, Go) and (self._is_loading or is_ending)

    def _take_line(self, text: str | None) -> None:
        line = None if text is None else parse(text)
        self._lines.append(line)
        if line is not None and line.command == STOP:  # every search before it
            self._stop()

    def _end_search(self) -> None:
        self._search = None

    def _stop(self) -> None:
        if self._search is not None:
            self._search.stop()

    def _wait_for_answer(self) -> None:
        """Of the search in progress, which was stopped."""
        end = time.monotonic() + FIRST_EVALUATION_S + LAST_ANSWER_S
        while self._search is not None and (left := end - time.monotonic()) > 0:
            with suppress(Empty):
                self._inbox.get(timeout=left)()

    def _obey(self, line: Parsed) -> bool:
        """Handle a line; False at the end."""
        self._send([info_string(remark) for remark in line.remarks])
        match line.command:
            case Plain("quit"):
                return False
            case Plain(word):
                self._plain(word)
            case SetOption(name, value):
                self._set_option(name, value)
            case SetPosition() as position:
                self._set_position(position)
            case Go() as go:
                self._go(go)
        return True

    def _plain(self, word: str) -> None:
        if word == "uci":
            self._send(
                [
                    f"id name {escaped(self._identity)}",
                    "id author the alphazero developers",
                    *self._option_lines(),
                    "uciok",
                ]
            )
        elif word == "isready":
            self._be_ready()
        elif word == "ucinewgame":
            self._forget_first = True
        elif word == "stop":
            self._stop()
        elif word == "ponderhit" and self._search is not None:
            self._search.ponder_hit()

    def _option_lines(self) -> Iterator[str]:
        """UCI_Elo with the range that was measured; neither it nor UCI_LimitStrength without one."""
        for option in TABLE:
            if self._levels is None and option.name in (LIMITS_STRENGTH, ELO):
                continue
            if self._levels is not None and option.name == ELO:
                low, high = self._levels.elos
                option = replace(option, default=str(high), low=low, high=high)
            yield option.line

    def _levels_of(self, weights: str) -> Levels | None:
        try:
            return self._find_levels(weights)
        except AlphaZeroError as error:
            self._remarks.append(f"{error}; {ELO} has no effect")
            return None

    def _node_limit(self) -> int:
        """NodeLimit, and the nodes of UCI_Elo where it limits; 0 for none. A new choice is reported."""
        limit: int = self.options["NodeLimit"]
        if not self.options[LIMITS_STRENGTH]:
            return limit
        said = f"{LIMITS_STRENGTH}: no effect without levels of the network, which rate --levels measures"
        if self._levels is not None:
            low, high = self._levels.elos
            elo = min(max(self.options[ELO], low), high)
            nodes = self._levels.nodes_for(elo)
            limit = min(limit or nodes, nodes)
            said = f"{ELO} {elo} of {low} to {high}: {nodes} nodes a move. {self._levels.scale}"
        if said != self._strength:
            self._send([info_string(said)])
        self._strength = said
        return limit

    def _set_option(self, name: str, value: str) -> None:
        try:
            changed = copy.deepcopy(self.options)
            option = changed.set(name, value)
            if option.name in (TABLES, FIFTY_MOVES):
                self._tables = self._open_tables(changed)
        except AlphaZeroError as error:
            self._send([info_string(f"{error}; option unchanged")])
            return
        self.options = changed
        if remark := self.options.fit(option):
            self._remarks.append(remark)
        if option.name == "Clear Hash":
            self._forget_first = True
        if option.name == "WeightsFile":
            self._weights = self.options[option.name] or self._weights
        if option.name in NETWORK_OPTIONS:
            self._load()

    def _open_tables(self, options: Options) -> SearchTables | None:
        """Those of these options. Raises ConfigError or DataError for directories without usable tables."""
        paths = options[TABLES]
        if self._network is not None:
            _refuse_tables(self._network.game, paths)
        if not paths:
            return None
        tables = Tablebases(paths, TABLES, fifty_moves=options[FIFTY_MOVES])
        return SearchTables(tables, lambda text: self._send([info_string(text)]))

    def _set_position(self, command: SetPosition) -> None:
        """Set the position; after an invalid one there is none: an answer would be of another game."""
        self._line = None
        try:
            if command.problem:
                raise GameInputError(command.problem)
            assert self._network is not None
            line = make_line(self._network.game, command.fen or None)
            for number, text in enumerate(command.moves, start=1):
                try:
                    line.push(read_move(line, text))
                except _core.GameError as error:
                    raise GameInputError(f"move {number}: {error}") from None
        except AlphaZeroError as error:
            self._send([info_string(f"position: {error}; refused")])
            return
        self._line = line

    def _go(self, go: Go) -> None:
        began = time.monotonic()
        if self._search is not None:
            self._send([info_string("go: stopped the search in progress")])
            self._stop()
            self._wait_for_answer()
        self._send([info_string(remark) for remark in self._remarks])
        self._remarks = []
        assert self._network is not None  # `go` waits for it
        line = make_line(self._network.game) if self._line is None else self._line.copy()
        options = copy.deepcopy(self.options)  # later ones hold from the next `go`
        options.set("NodeLimit", str(self._node_limit()))
        try:
            tree = self._ready_tree()
        except Exception as error:  # of any kind: the GUI waits for a move
            self._send([info_string(f"the search failed: {reason(error)}")])
            tree = None
        self._start(
            EngineSearch(
                line,
                go,
                options,
                tree,
                self._send,
                began,
                tables=self._tables,
                problem=NO_POSITION if self._line is None else "",
            )
        )

    def _start(self, search: EngineSearch) -> None:
        def answer() -> None:
            try:
                with suppress(BrokenPipeError):  # the reader has gone
                    search.run()
            finally:
                self._inbox.put(self._end_search)

        self._search = search
        threading.Thread(target=answer, name="search", daemon=True).start()
        if any(line is not None and line.command == STOP for line in self._lines):
            self._stop()

    def _be_ready(self) -> None:
        """Answer `isready`, with the tree of the next search ready unless there is a search."""
        if self._search is None:
            try:
                self._ready_tree()
            except Exception as error:  # of any kind: `go` tries again and reports it
                self._send([info_string(f"not ready to search: {reason(error)}")])
        self._send(["readyok"])

    def _ready_tree(self) -> TreeSearch:
        """The tree with the current network, settings and tables."""
        assert self._network is not None  # `isready` and `go` wait for it
        if self._tables is not None and self._tables.is_lost:
            self._tables = None
        settings = TreeSettings(**{option.sets: self.options[option.name] for option in TABLE if option.sets})
        made_with = self._network, self._tables
        if self._tree is None:
            self._tree = TreeSearch(self._network.game, self._network.evaluator, settings, self._tables)
        elif self._tree_of != made_with or settings != self._tree.settings:
            self._tree.reset(self._network.evaluator, settings, self._tables)
        elif self._forget_first:
            self._tree.forget()
        self._tree_of, self._forget_first = made_with, False
        return self._tree

    def _load(self) -> None:
        threads, minibatch_size = self.options["Threads"], self.options["MinibatchSize"]
        request = NetworkRequest(self._weights, threads, minibatch_size)
        if request == self._requested:
            return
        self._requested, self._is_loading = request, True

        def open_it() -> None:
            try:
                opened: LoadedNetwork | Exception = self._open_network(request)
            except Exception as error:  # of any kind: the engine decides what follows
                opened = error
            self._inbox.put(partial(self._loaded, request, opened))

        threading.Thread(target=open_it, name="network", daemon=True).start()

    def _loaded(self, request: NetworkRequest, opened: LoadedNetwork | Exception) -> None:
        self._is_loading = False
        game = None if self._network is None else self._network.game
        if isinstance(opened, LoadedNetwork) and game not in (None, opened.game):
            opened = WeightsError(f"network {request.weights}: plays {opened.game}; expected {game}")
        if isinstance(opened, Exception):
            if self._network is None:
                raise opened
            self._send([info_string(f"{reason(opened)}; network unchanged")])
            self._weights, self._requested = self._network_weights, None
            return
        if self._network is None:
            self._line = make_line(opened.game)
            _refuse_tables(opened.game, self.options[TABLES])
        if request.weights != self._network_weights:
            self._levels = self._levels_of(request.weights)
        self._network, self._network_weights = opened, request.weights
        self._remarks.append(opened.description)

    def _send(self, lines: list[str]) -> None:
        if lines:
            with self._writing:
                self._write("".join(f"{line}\n" for line in lines))


def _refuse_tables(game: str, paths: str) -> None:
    """Raise ConfigError for tables of a game that has none."""
    if paths and game != CHESS:
        raise ConfigError(f"option {TABLES}: tablebases are of chess; the network plays {game}")
