"""Writes a summary into one run: its arguments are MODULE and RUN, and the summary is JSON on standard input.

The interpreter of a job runs this text, which therefore imports nothing of this project, and needs Python 3.9.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

Texts = Mapping[str, str]
Numbers = Mapping[str, float]


def _to_wandb(run_id: str, numbers: Numbers, texts: Texts) -> None:
    mode = os.environ.get("WANDB_MODE", "online")
    if mode == "disabled":
        sys.exit("WANDB_MODE is disabled")
    import wandb

    # The job goes on to write into the run: in the mode `shared`, this process is only a further source of it.
    offline = mode not in ("online", "shared")
    shared: dict[str, Any] = {} if offline else {"mode": "shared", "x_primary": False, "x_update_finish_state": False}
    # The summary alone: wandb would also send the command line, the machine, and the installed packages.
    own = {"disable_code": True, "disable_git": True, "x_disable_machine_info": True, "x_disable_meta": True}
    own |= {"silent": True, "x_disable_stats": True, "x_save_requirements": False}
    settings = wandb.Settings(console="off", **own, **shared)
    run = wandb.init(id=run_id, resume="allow" if offline else None, settings=settings)
    run.summary.update({**numbers, **texts})
    run.finish()


def _to_mlflow(run_id: str, numbers: Numbers, texts: Texts) -> None:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, RunTag

    now = time.time_ns() // 1_000_000
    metrics = [Metric(name, value, now, 0) for name, value in numbers.items()]
    MlflowClient().log_batch(run_id, metrics=metrics, tags=[RunTag(name, text) for name, text in texts.items()])


def _to_tensorboard(folder: str, numbers: Numbers, texts: Texts) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    # TensorBoard reads only the newest file of a folder, so a file beside those of the job would hide the job's.
    writer = EventFileWriter(str(Path(folder) / "zernel"))
    values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
    values += [value for name, text in texts.items() for value in text_pb(name, text).value]
    writer.add_event(Event(wall_time=time.time(), step=0, summary=Summary(value=values)))
    writer.close()


_WRITERS: Final[Mapping[str, Callable[[str, Numbers, Texts], None]]] = {
    "wandb": _to_wandb,
    "mlflow": _to_mlflow,
    "tensorboard": _to_tensorboard,
}


def main() -> None:
    """Ends with a traceback, whose last line is the reason, if it cannot write."""
    sys.path[:] = filter(None, sys.path)  # without the folder of the job, whose files may have any name
    module, run = sys.argv[1:]
    summary: dict[str, Any] = json.load(sys.stdin)
    _WRITERS[module](run, summary["numbers"], summary["texts"])


if __name__ == "__main__":
    main()
