"""The UCI engine: commands in order and their answers, while a separate thread loads networks."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import IO, TypeAlias

import alphazero._core as _core
from alphazero.base.errors import AlphaZeroError, GameInputError
from alphazero.base.text import escaped, reason
from alphazero.base.transcript import READ, WRITTEN, Transcript
from alphazero.games.core_types import Line
from alphazero.games.registry import make_line
from alphazero.games.tablebases import Tablebases
from alphazero.play.uci.options import TABLE, Options, find_option
from alphazero.play.uci.protocol import (
    Debug,
    Go,
    Plain,
    SetOption,
    SetPosition,
    board_lines,
    info_string,
    parse,
)
from alphazero.play.uci.search import EngineSearch, PerftCount
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
    """A network that evaluates chess positions, and one line about it."""

    evaluator: Evaluator
    description: str


# Loads a network. Raises AlphaZeroError for one that cannot be used.
OpenNetwork: TypeAlias = Callable[[NetworkRequest], LoadedNetwork]


@dataclass(frozen=True)
class Loading:
    """The result of a request: a network, an error, or neither where a newer request replaced it."""

    request: NetworkRequest
    network: LoadedNetwork | None = None
    error: Exception | None = None


LONGEST_LINE = 2**20
LAST_ANSWER_S = 1.0  # that the end of the program waits for, and what follows `go perft`
TABLES = "SyzygyPath"
NETWORK_OPTIONS = ("WeightsFile", "Threads", "MinibatchSize")
_END = None  # of the input


class UciEngine:
    """Answers commands until `quit` or the end of the input.

    open_network loads a network; `weights` names the first one. run() handles the commands; other threads
    read them, search, load networks and send lines.
    """

    def __init__(
        self,
        identity: str,
        weights: str,
        open_network: OpenNetwork,
        write: Callable[[str], None],
        given: Mapping[str, str] | None = None,
    ) -> None:
        self.options = Options(given)
        self._identity = identity
        self._weights = weights
        self._write = write
        self._writing = threading.RLock()
        self._transcript = Transcript()
        self._inbox: SimpleQueue[str | Loading | None] = SimpleQueue()
        self._open_network = open_network
        self._loading = 0  # networks being loaded
        self._turn_to_load = threading.Lock()
        self._newest: NetworkRequest | None = None
        self._requested: NetworkRequest | None = None  # the newest unless it failed
        self._awaiting_ready = 0
        self._line: Line = make_line("chess")
        self._search: EngineSearch | PerftCount | None = None
        self._is_greeted = False  # programs expect the answer to `uci` first
        self._is_debugging = False
        self._forget_first = False
        self._tables = self._open_tables(self.options.text(TABLES))
        # Guarded by _changed: the network and the tree, for which a search may wait.
        self._changed = threading.Condition()
        self._network: LoadedNetwork | None = None
        self._network_weights = weights
        self._tree: TreeSearch | None = None
        self._tree_of: tuple[LoadedNetwork, SearchTables | None] | None = None  # what the tree was made with
        self._is_settled = False  # no network is being loaded

    def run(self, lines: IO[bytes]) -> int:
        """Serve; returns the exit status.

        Raises AlphaZeroError where the first network cannot be used, or LogFile not be written.
        """
        self._transcript.open(self.options.text("LogFile"), "option LogFile")
        self._load()
        threading.Thread(target=self._read, args=(lines,), name="commands", daemon=True).start()
        try:
            while self._serve(self._inbox.get()):
                pass
        finally:
            if isinstance(self._search, PerftCount):
                self._search.join(LAST_ANSWER_S)
            self._stop()
            if self._search is not None:
                self._search.join(LAST_ANSWER_S)
            self._transcript.close()
        return 0

    def _stop(self) -> None:
        if self._search is not None:
            self._search.stop()
        with self._changed:  # it may wait for a network
            self._changed.notify_all()

    def _read(self, lines: IO[bytes]) -> None:
        is_cut = False  # the rest of a line that is ignored follows
        while raw := lines.readline(LONGEST_LINE):
            is_whole = raw.endswith(b"\n") or len(raw) < LONGEST_LINE
            if is_whole and not is_cut:
                self._inbox.put(raw.decode("utf-8", "replace"))
            elif is_whole:
                self._send([info_string(f"ignored a line of more than {LONGEST_LINE:,} bytes")])
            is_cut = not is_whole
        self._inbox.put(_END)

    def _serve(self, item: str | Loading | None) -> bool:
        """Handle a line or a loaded network; False at the end."""
        if item is None:
            return False
        if isinstance(item, Loading):
            self._loaded(item)
            return True
        self._log(READ, [item.rstrip("\r\n")])
        parsed = parse(item)
        self._send([info_string(remark) for remark in parsed.remarks])
        command = parsed.command
        match command:
            case Plain("quit"):
                return False
            case Plain(word):
                self._plain(word)
            case Debug(is_on):
                self._is_debugging = is_on
            case SetOption():
                self._set_option(command)
            case SetPosition():
                self._set_position(command)
            case Go():
                self._go(command)
        return True

    def _plain(self, word: str) -> None:
        if word == "uci":
            self._send(
                [
                    f"id name {escaped(self._identity)}",
                    "id author the alphazero developers",
                    *(option.line for option in TABLE),
                    "uciok",
                ]
            )
            self._is_greeted = True
            self._send([info_string(remark) for remark in self.options.remarks])
            self._describe_network()
        elif word == "isready":
            # During a search at once; while the network is loading, afterwards.
            if self._is_settled or self._is_searching():
                self._be_ready(1)
            else:
                self._awaiting_ready += 1
        elif word == "ucinewgame":
            self._forget_first = True
        elif word == "stop":
            self._stop()
        elif word == "ponderhit" and isinstance(self._search, EngineSearch):
            self._search.ponder_hit()
        elif word == "d":
            self._send(board_lines(self._line))

    def _set_option(self, command: SetOption) -> None:
        try:
            option = find_option(command.name)
            if option.name == "LogFile":
                self._transcript.open(option.checked(command.value), "option LogFile")
            elif option.name == TABLES:
                self._tables = self._open_tables(option.checked(command.value))
            self.options.set(command.name, command.value)
        except AlphaZeroError as error:
            self._send([info_string(f"{error}; option unchanged")])
            return
        if remark := self.options.fit(option):
            self._send([info_string(remark)])
        if option.name == "Clear Hash":
            self._forget_first = True
        if option.name == "WeightsFile":
            self._weights = self.options.text("WeightsFile") or self._weights
        if option.name in NETWORK_OPTIONS:
            self._load()

    def _open_tables(self, paths: str) -> SearchTables | None:
        """Raises ConfigError or DataError for directories without tables that can be used."""
        if not paths:
            return None
        return SearchTables(Tablebases(paths, TABLES), lambda text: self._send([info_string(text)]))

    def _set_position(self, command: SetPosition) -> None:
        """Set the position; an invalid one changes nothing."""
        try:
            line = make_line("chess", command.fen or None)
            for number, text in enumerate(command.moves, start=1):
                try:
                    line.push_text(text)
                except _core.GameError as error:
                    raise GameInputError(f"move {number}: {error}") from None
        except AlphaZeroError as error:
            self._send([info_string(f"position: {error}; position unchanged")])
            return
        self._line = line

    def _go(self, go: Go) -> None:
        began = time.monotonic()
        if isinstance(self._search, PerftCount):
            self._search.join(LAST_ANSWER_S)  # programs send several at once
        if self._search is not None and self._search.is_alive():
            if self._is_searching():
                self._send([info_string("go: stopped the search in progress")])
            self._stop()
        if self._search is not None:
            self._search.join()
        line = self._line.copy()
        if go.perft is not None:
            position, chess960 = _core.ChessPosition(str(line)), self.options.is_on("UCI_Chess960")
            text = partial(position.uci, chess960=chess960)
            self._search = PerftCount(line, go.perft, self._send, text)
            self._search.start()
            return
        self._search = EngineSearch(
            line,
            go,
            copy.deepcopy(self.options),  # later ones hold from the next `go` on
            self._ready_tree,
            self._send,
            began,
            tables=self._tables,
            counts=self._is_debugging,
        )
        self._search.start()

    def _is_searching(self) -> bool:
        search = self._search
        return search is not None and search.is_alive() and not search.stopped.is_set()

    def _settings(self) -> TreeSettings:
        options = self.options
        return TreeSettings(
            c_puct=options.number("CPuct"),
            c_puct_base=options.number("CPuctBase"),
            c_puct_factor=options.number("CPuctFactor"),
            fpu_reduction=options.number("FpuReduction"),
            policy_temperature=options.number("PolicyTemperature"),
            two_fold_draws=options.is_on("TwoFoldDraws"),
            cache_mb=options.whole("Hash"),
            tree_mb=options.whole("MemoryLimit"),
            in_flight=options.whole("BatchesInFlight"),
        )

    def _be_ready(self, times: int) -> None:
        """Answer `isready`, with the tree of the next search ready unless there is a search."""
        if self._search is None or not self._search.is_alive():
            try:
                self._ready_tree()
            except Exception as error:  # of any kind: `go` tries again and reports it
                self._send([info_string(f"not ready to search: {reason(error)}")])
        self._send(["readyok"] * times)

    def _ready_tree(self, search: EngineSearch | None = None) -> TreeSearch | None:
        """The tree with the current network and settings, for a search once no network is being loaded.

        None where there is no network, or the search was stopped first.
        """
        with self._changed:
            if search is not None:
                self._changed.wait_for(lambda: self._is_settled or search.stopped.is_set())
            network = self._network
            if network is None:
                return None
            settings, tables = self._settings(), self._tables
            if self._tree is None:
                self._tree = TreeSearch("chess", network.evaluator, settings, tables)
            elif self._tree_of != (network, tables) or settings != self._tree.settings:
                self._tree.reset(network.evaluator, settings, tables)
            elif self._forget_first:
                self._tree.forget()
            self._tree_of, self._forget_first = (network, tables), False
            return self._tree

    def _load(self) -> None:
        threads, minibatch_size = self.options.whole("Threads"), self.options.whole("MinibatchSize")
        request = NetworkRequest(self._weights, threads, minibatch_size)
        if request == self._requested:
            return
        self._requested = request
        with self._changed:
            self._is_settled = False
        self._loading += 1
        self._newest = request
        threading.Thread(target=self._open, args=(request,), name="network", daemon=True).start()

    def _open(self, request: NetworkRequest) -> None:
        """In a separate thread: load a network after those before it, unless a newer one is wanted."""
        with self._turn_to_load:
            try:
                is_wanted = request is self._newest
                loading = Loading(request, network=self._open_network(request) if is_wanted else None)
            except Exception as error:  # of any kind: the engine decides what follows
                loading = Loading(request, error=error)
        self._inbox.put(loading)

    def _loaded(self, loading: Loading) -> None:
        self._loading -= 1
        if loading.error is not None:
            if self._network is None and self._loading == 0 and isinstance(loading.error, AlphaZeroError):
                raise loading.error
            self._send([info_string(f"{reason(loading.error)}; network unchanged")])
            self._weights, self._requested = self._network_weights, None
        with self._changed:
            if loading.network is not None:
                self._network = loading.network
                self._network_weights = loading.request.weights
            self._is_settled = self._loading == 0
            self._changed.notify_all()
        if loading.network is not None and self._is_greeted:
            self._describe_network()
        if self._is_settled and self._awaiting_ready:
            self._be_ready(self._awaiting_ready)
            self._awaiting_ready = 0

    def _describe_network(self) -> None:
        if self._network is not None:
            self._send([info_string(self._network.description)])

    def _send(self, lines: list[str]) -> None:
        if lines:
            with self._writing:
                self._write("".join(f"{line}\n" for line in lines))
                self._log(WRITTEN, lines)

    def _log(self, sign: str, lines: list[str]) -> None:
        if trouble := self._transcript.add(sign, lines):
            self._send([info_string(f"option LogFile: {trouble}")])
