"""Weights & Biases: its own reader of TensorBoard's files sends the curves, also those of a resumed run."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.run.directory import RunDirectory
from alphazero.settings.sections import RunConfig
from alphazero.show.tensorboard import events_directory

ID_FILE = "wandb.id"


def require_wandb(config: RunConfig) -> None:
    """Raise ConfigError where a run is to use Weights & Biases and cannot."""
    if not config.wandb:
        return
    if not config.tensorboard:
        raise ConfigError(
            "--wandb: sends TensorBoard's files; expected --tensorboard", found_by_all_ranks=True
        )
    # A directory of this name, as the package itself leaves them, passes for an empty package.
    spec = importlib.util.find_spec("wandb")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "--wandb: the package wandb is not installed; expected pip install wandb, or --no-wandb",
            found_by_all_ranks=True,
        )


def start_wandb(
    run: RunDirectory, config: RunConfig, settings: Mapping[str, Any], say: Callable[[str], None]
) -> Callable[[bool], None]:
    """Have all that TensorBoard's writer writes from here on sent; returns what ends that.

    settings: all of the run's, by section. say prints where the figures can be seen. The argument of what is
    returned is whether the run failed.
    """
    require_wandb(config)
    import wandb
    from wandb.integration import tensorboard

    try:
        path = run.path / ID_FILE  # by which a resumed run continues there
        if not path.exists():
            path.write_text(secrets.token_hex(4), encoding="utf-8")
        # Without copies of the files, which would stand below the run's directory and be read as well.
        tensorboard.patch(save=False, root_logdir=str(events_directory(run, config)))
        started: Any = wandb.init(
            project=config.wandb_project,
            entity=config.wandb_team or None,
            group=config.wandb_group or None,
            name=run.path.name,
            id=path.read_text(encoding="utf-8", errors="replace"),
            dir=str(run.path),
            resume="allow",
            config=dict(settings),
            # Their lines would break a log of JSON objects and the progress bar.
            settings=wandb.Settings(console="off", silent=True),
        )
    except (wandb.Error, OSError) as error:
        text = " ".join(str(error).split())
        raise ConfigError(f"--wandb: {text}; expected `wandb login`, or WANDB_MODE=offline") from error
    directory = Path(started.dir).parent
    say(f"Weights & Biases: {started.url or f'offline; send later with: wandb sync {directory}'}")

    def finish(failed: bool) -> None:
        started.finish(exit_code=int(failed))
        tensorboard.unpatch()

    return finish
