"""What a report says of real runs (tests/fixtures/v0) and of made-up ones, as data."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alphazero.cli.main import main
from alphazero.data.store.store import GameStore
from alphazero.games.registry import make_line
from alphazero.show.report.games import MoveReader, wrong_positions
from alphazero.show.report.openings import opening_tree, search_values
from alphazero.show.report.page import json_of, page_of
from alphazero.show.report.report import RunReport, build
from tests.support.paths import FIXTURES
from tests.support.report.made_up_runs import record_of, step_line, supervised_run

SELF_PLAY = FIXTURES / "v0" / "selfplay"


def report_of(*paths: Path) -> RunReport:
    return build(paths)


@pytest.fixture(scope="module")
def self_play() -> dict:
    return report_of(SELF_PLAY).to_json()


@pytest.fixture(scope="module")
def supervised(tmp_path_factory) -> dict:
    return report_of(supervised_run(tmp_path_factory.mktemp("runs") / "one").path).to_json()


def test_the_newest_games_of_self_play_come_with_what_the_search_knew(self_play) -> None:
    (run,) = self_play["runs"]
    store = GameStore.open(SELF_PLAY / "games")
    assert run["games_from"] == "search"
    assert run["games"][0]["title"] == f"Self-play game {store.num_games:,}"
    shard = store.shards[-1]
    moves = shard.moves[shard.moves_offset[-2] : shard.moves_offset[-1]].tolist()
    frames = run["games"][0]["frames"]
    # A stone falls: in Connect Four the texts are columns from 1, and the squares lie below each other.
    assert [frame["move"][0] for frame in frames[1:]] == [str(move + 1) for move in moves]
    assert [frame["move"][2] % 7 for frame in frames[1:]] == moves
    assert sum(cell != "." for cell in frames[-1]["cells"]) == len(moves)
    q = shard.search.root_q.values[shard.search.ply_offset[-2] : shard.search.ply_offset[-1]]
    seen = [(ply, frame) for ply, frame in enumerate(frames) if "value" in frame]
    assert seen
    for ply, frame in seen:
        assert frame["value"] == pytest.approx(q[ply] * (-1) ** ply, abs=1e-4)
        shares = [share for *_, share in frame["policy"]]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) <= 1.001


def test_openings_are_a_tree_of_counts_and_scores(self_play) -> None:
    store = GameStore.open(SELF_PLAY / "games")
    tree = opening_tree(store)
    assert tree is not None
    assert tree["games"] == store.num_games
    firsts = np.concatenate([view.moves[view.moves_offset[:-1]] for view in store.shards])
    results = np.concatenate([view.result for view in store.shards])
    for node in tree["moves"]:
        chosen = firsts == int(node["move"]) - 1
        assert node["games"] == chosen.sum()
        assert node["score"] == pytest.approx(((results[chosen] + 1) / 2).mean(), abs=1e-4)
        assert sum(child["games"] for child in node["moves"]) <= node["games"]
    assert self_play["runs"][0]["openings"] == tree
    search = search_values(store)
    assert search is not None
    searched = sum(int((view.search.visits.values > 0).sum()) for view in store.shards)
    assert sum(search.count) == searched


def test_an_old_run_says_why_panels_are_empty(self_play) -> None:
    empty = {panel["name"]: panel["empty"] for panel in self_play["panels"] if not panel["marks"]}
    assert {"calibration_error", "phases", "gpu_utilisation", "elo"} <= empty.keys()
    assert all(empty.values())
    assert "before validations recorded" in empty["phases"]
    assert self_play["runs"][0]["no_wrong"]


def test_a_supervised_run_has_what_its_validations_recorded(supervised) -> None:
    (run,) = supervised["runs"]
    panels = {panel["name"]: panel for panel in supervised["panels"]}
    score, _ = panels["reliability"]["marks"]
    assert score["predicted"] == [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95]
    assert score["count"] == [10] * 10
    assert score["label"].endswith("off by 2.5%")
    assert panels["calibration_error"]["marks"][0]["step"] == [10, 20, 30, 40]
    assert panels["phases"]["marks"][0]["categories"] == ["opening", "middlegame", "endgame"]
    best = next(mark["best"] for mark in panels["policy_loss"]["marks"] if mark["label"] == "validation")
    assert (best["step"], best["minutes"]) == (40, 4.0)
    game = run["games"][0]
    assert game["title"] == "Anna - Boris"
    assert [frame["move"][0] for frame in game["frames"][1:]] == ["e4", "e5", "Nf3", "Nc6", "Bb5"]
    # The value is White's: of Black's moves it changes its sign.
    assert [frame.get("value") for frame in game["frames"]] == [0.0, -0.1, 0.2, -0.3, 0.4, None]
    assert game["frames"][0]["policy"][0] == ["e4", 52, 36, 0.5]
    first = run["wrong"][0]
    assert (first["target"], first["policy"][0][0]) == (["a4", 48, 32, 0.004], "e4")


def test_restarts_skipped_steps_and_alarms_are_events(tmp_path) -> None:
    run = supervised_run(tmp_path / "one")
    with run.metrics.open("a") as file:
        file.write(json.dumps(step_line(43)) + "\n")
        alarm = {"step": 43, "cause": "disk", "text": "full soon", "advice": "tidy up"}
        file.write(json.dumps({"kind": "alarm", "time_s": 1.0, **alarm}) + "\n")
    events = report_of(run.path).to_json()["runs"][0]["events"]
    assert [(event["kind"], event["step"]) for event in events] == [
        ("restart", 20),
        ("skipped", 41),
        ("alarm", 43),
    ]
    assert events[0]["minutes"] == 2.0
    assert "2 steps skipped" in events[1]["text"]
    assert (events[2]["text"], events[2]["advice"]) == ("disk: full soon", "tidy up")


@pytest.mark.parametrize("number", [10**30, 10**4290, -1])
def test_numbers_of_a_start_or_of_the_settings_that_no_run_has_are_not_known(tmp_path, number) -> None:
    run = supervised_run(tmp_path / "one")
    started = sorted(run.path.glob("started-*.json"))[-1]
    started.write_text(json.dumps({**json.loads(started.read_text()), "step": number}))
    config = json.loads(run.config.read_text())
    config["training"]["batch_size"] = number
    run.config.write_text(json.dumps(config))
    body = report_of(run.path).to_json()["runs"][0]
    assert (body["events"][0]["kind"], body["events"][0]["step"]) == ("restart", None)
    assert "positions trained on" not in [name for name, _ in body["facts"]]


@pytest.mark.parametrize("out", ["report.html", pytest.param("report.png", marks=pytest.mark.slow)])
def test_figures_and_ratings_that_no_run_can_have_are_not_drawn(tmp_path, out) -> None:
    run = supervised_run(tmp_path / "one")
    with run.metrics.open("a") as file:
        for loss in (1e300, -1e300, 1e17):
            file.write(json.dumps(step_line(44, loss=loss, policy_loss=loss)) + "\n")
    lines = ({"step": 20, "elo": elo, "elo_95": [0, 1]} for elo in (10**300, 1200))
    damaged = {"step": 10**400, "elo": 1, "elo_95": [0, 1]}
    (run.path / "ratings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (*lines, damaged)))
    assert main(["report", str(run.path), "--out", str(tmp_path / out)]) == 0
    assert (tmp_path / out).stat().st_size > 1000


def test_several_runs_tell_the_settings_in_which_they_differ(tmp_path) -> None:
    one, two = (supervised_run(tmp_path / place / "run") for place in ("a", "b"))
    config = json.loads(two.config.read_text())
    config["optimizer"]["learning_rate"] = 0.5
    config["data"]["cache_dir"] = "elsewhere"
    two.config.write_text(json.dumps(config))
    report = report_of(one.path, two.path).to_json()
    assert report["compared"] == [["optimizer.learning_rate", ["0.001", "0.5"]]]
    assert report["runs"][1]["settings"] == [["optimizer.learning_rate", "0.5", "0.001"]]
    # Two runs of one name are told apart by their paths.
    assert [run["name"] for run in report["runs"]] == [str(one.path), str(two.path)]


def test_damaged_files_beside_the_figures_cost_their_panels_only(tmp_path) -> None:
    run = supervised_run(tmp_path / "one")
    run.config.write_text("{")
    (run.path / "validation.jsonl").write_text('{"version": 1}\n[]\nnonsense\n')
    (run.path / "validation_games.json").write_text('{"games": [{"moves": 3}]}')
    (run.path / "ratings.jsonl").write_text("null\n{}\n")
    for path in run.path.glob("started-*.json"):
        path.write_text("[1, 2]")
    run.games.mkdir()
    (run.games / "manifest.json").write_text("no manifest")
    body = report_of(run.path).to_json()["runs"][0]
    assert body["games"] == body["wrong"] == body["settings"] == []
    assert "manifest.json" in body["no_games"]


def test_a_position_that_several_games_reached_is_shown_once() -> None:
    record = record_of(10)
    by_policy, by_value = record.wrong
    again = replace(record, wrong=(by_policy, by_policy, by_value, replace(by_policy, by="value")))
    shown = [(one["by"], one["position"]) for one in wrong_positions("chess", again)]
    assert shown == [(one.by, one.position) for one in (by_policy, by_value)] + [
        ("value", by_policy.position)
    ]


def test_squares_of_moves_in_every_game() -> None:
    assert MoveReader(make_line("othello")).arrow("d3")[2] == 5 * 8 + 3
    assert MoveReader(make_line("connect4", "7/7/7/7/7/x6")).arrow("1")[2] == 4 * 7
    castling = MoveReader(make_line("chess", "4k3/8/8/8/8/8/8/4K2R w K - 0 1")).arrow("e1g1")
    assert castling == ["O-O", 60, 62, 1.0]


def test_what_a_run_holds_is_data_and_never_a_part_of_the_page(tmp_path) -> None:
    evil = "<script>document.title='taken'</script><img src=x onerror=alert(1)>&"
    run = supervised_run(tmp_path / evil.replace("/", "\\"))
    report = build([run.path])
    page = page_of(report)
    inserted = page.replace(json_of(report), "")
    assert "document.title='taken'" in json_of(report)
    assert page.count("<script>document.title") == 0
    assert "<img" not in inserted.split("<script>")[0]
    assert "unsafe" not in page.split("script-src")[1].split(";")[0]
    data = page.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert json.loads(data) == json.loads(json_of(report)) == report.to_json()


def test_the_command_writes_a_page_and_prints_the_same_as_json(tmp_path, capsys) -> None:
    run = supervised_run(tmp_path / "one")
    assert main(["report", str(run.path)]) == 0
    assert capsys.readouterr().out.strip() == str(run.path / "report.html")
    page = (run.path / "report.html").read_text()
    assert main(["report", str(run.path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    shown = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert {**shown, "made": ""} == {**data, "made": ""}
    assert len(page) < 2_000_000


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "--out", "x.html"],
        ["--watch", "--out", "x.html"],
        ["--png", "--out", "x.html"],
        ["--port", "8000"],
        ["--out", "nowhere/x.html"],
    ],
)
def test_flags_that_contradict_each_other_are_one_line(tmp_path, capsys, arguments) -> None:
    run = supervised_run(tmp_path / "one")
    assert main(["report", str(run.path), *arguments]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_run_of_a_million_steps_is_a_small_page_soon(tmp_path) -> None:
    run = supervised_run(tmp_path / "long")
    rng = np.random.default_rng(1)
    noise = rng.normal(scale=0.1, size=1_000_000)
    with run.metrics.open("w") as file:
        for step in range(1, 1_000_001):
            loss = 1.5 + 2 * np.exp(-step / 2e5) + noise[step - 1]
            file.write(json.dumps(step_line(step, policy_loss=loss, sample_id_sum=1.0)) + "\n")
            if step % 50 == 0:
                speed = {"samples_per_s": 9e4, "samples_per_s_per_rank": 9e4, "minutes": step / 100}
                file.write(json.dumps({"kind": "speed", "step": step, **speed}) + "\n")
                shares = {"compute": 0.9, "data_wait": 0.1}
                file.write(json.dumps({"kind": "time_share", "step": step, **shares}) + "\n")
            if step % 500 == 0:
                figures = {"policy_loss": loss, "value_loss": 0.8, "policy_top1": 0.4}
                file.write(json.dumps({"kind": "validation", "step": step, **figures}) + "\n")
    record = json.dumps(
        {**json.loads((run.path / "validation.jsonl").read_text().splitlines()[0]), "step": 0}
    )
    with (run.path / "validation.jsonl").open("w") as file:
        for step in range(500, 1_000_001, 500):
            file.write(record.replace('"step": 0', f'"step": {step}') + "\n")
    started = time.process_time()
    report = report_of(run.path)
    page = page_of(report)
    seconds = time.process_time() - started
    print(f"{run.metrics.stat().st_size / 1e6:.0f} MB of metrics: {len(page) / 1e6:.2f} MB, {seconds:.1f} s")
    assert len(page) < 5_000_000
    assert seconds < 10
    mark = report.to_json()["panels"][0]["marks"][0]
    loss = 1.5 + 2 * np.exp(-np.arange(1, 1_000_001) / 2e5) + noise
    assert min(mark["low"]) == pytest.approx(loss.min(), rel=1e-4)
    assert max(mark["high"]) == pytest.approx(loss.max(), rel=1e-4)


@pytest.mark.slow
def test_a_comparison_has_a_file_of_its_own(tmp_path, capsys) -> None:
    one, two = (str(supervised_run(tmp_path / "runs" / name).path) for name in ("one", "two"))
    (tmp_path / "runs" / "no-run").mkdir()

    def written(*words: str) -> tuple[str, list[str]]:
        """The file, and the runs in its title."""
        assert main(["report", *words]) == 0
        out = Path(capsys.readouterr().out.strip())
        title = out.read_text().partition("<title>")[2].partition(" - ")[0]
        return str(out.relative_to(tmp_path)), title.split(", ")

    assert written(one) == ("runs/one/report.html", ["one"])
    assert written(one, two) == ("runs/report-one-two.html", ["one", "two"])
    assert written(two, one) == ("runs/report-two-one.html", ["two", "one"])
    assert written(str(tmp_path / "runs")) == ("runs/report.html", ["one", "two"])
    assert written(str(tmp_path / "runs"), one) == ("report-runs-one.html", ["one", "two"])
    assert "<title>one - " in (tmp_path / "runs" / "one" / "report.html").read_text()
    assert main(["report", one, two, "--png"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "runs" / "report-one-two.png")
    assert main(["report", str(tmp_path / "runs" / "no-run")]) == 2
    assert "no-run/metrics.jsonl: no such" in capsys.readouterr().err
    long = [str(supervised_run(tmp_path / (letter * 250)).path) for letter in "ab"]
    assert written(*long)[0] == f"report-{'a' * 193}.html"
