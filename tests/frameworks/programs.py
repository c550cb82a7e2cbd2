"""The programs, and what each of them must show.

To add one: write a function in `jobs` that trains for about five seconds between `run.get_ready()` and the end of
`run.truth.loop()`, calls `run.truth.stepped()` for each step, and marks the forward pass. Add it to `PROGRAMS`, and its
package to `tests/interop/install-frameworks.sh`. `python -m tests.frameworks NAME` prints the seconds that are wrong.
"""

from dataclasses import dataclass

WITH_LOADER, WITHOUT_LOADER = 0.995, 0.98
"""The least share of the scored time with the correct phase."""


@dataclass(frozen=True)
class Program:
    """A training program on one framework."""

    job: str
    """Where it is: a module in `tests/frameworks/jobs` and a function, MODULE:FUNCTION."""
    package: str = "torch"
    """The package on PyPI that the program shows."""
    floor: float = WITH_LOADER
    """The least agreement, 0 to 1."""
    boundary: str = "loader"
    """What divides its steps: `loader`, `optimizer` or `backward`."""
    ranks: int = 1
    """Processes, started by torchrun if there are several."""
    soak: bool = False
    """Whether it is too long, or too similar to another, for every run of the tests."""
    scopes: bool = True
    """Whether it uses PyTorch. Without PyTorch's scopes there are no steps to score."""
    without: frozenset[str] = frozenset()
    """The kinds of intervals that are taken away from the receiver's spans, as if their mark were missing."""
    fails: str = ""
    """Why its phases do not agree yet, with the measured agreement. Empty if they do."""


def _by_hand(job: str, boundary: str = "optimizer", *, soak: bool = False, ranks: int = 1, fails: str = "") -> Program:
    return Program(job, floor=WITHOUT_LOADER, boundary=boundary, soak=soak, ranks=ranks, fails=fails)


def _by_loader(job: str, package: str = "torch", *, soak: bool = False, fails: str = "") -> Program:
    return Program(job, package, floor=WITHOUT_LOADER, soak=soak, fails=fails)


PROGRAMS = {
    "Lightning": Program("lightning_:fit", "lightning"),
    "transformers Trainer": Program("huggingface:trainer", "transformers"),
    "accelerate": Program("accelerate_:train", "accelerate"),
    "sentence-transformers": Program("huggingface:sentences", "sentence-transformers", soak=True),
    "ignite": Program("ignite_:run", "pytorch-ignite"),
    "Keras 3": Program("keras_:fit", "keras"),
    "torch.compile": Program("compiled:with_loader"),
    "torch.compile, no marks of operators": Program("compiled:with_loader", without=frozenset({"operators"})),
    "torch.compile, no loader": _by_hand("compiled:without_loader", soak=True),
    "GAN": Program("optimizers:gan", soak=True),
    "GAN, two loaders": Program("optimizers:gan_of_two_loaders"),
    "GAN, no loader": _by_hand("optimizers:gan_by_hand", soak=True),
    "LBFGS": Program("optimizers:lbfgs"),
    "optimizer in backward": Program("optimizers:in_backward"),
    "nanoGPT": _by_hand("batches:nanogpt"),
    "queue": _by_hand("batches:queue"),
    "queue, accumulation 4": _by_hand("batches:accumulated", soak=True),
    "tar file": _by_hand("batches:streamed"),
    "evaluation without a loader": Program("batches:evaluated"),
    "policy gradient": _by_hand("reinforcement:by_hand"),
    "stable-baselines3": Program(
        "reinforcement:stable_baselines", "stable-baselines3", floor=WITHOUT_LOADER, boundary="optimizer"
    ),
    "generation while training": Program("huggingface:generating"),
    "generation": Program("huggingface:generating_only", floor=WITHOUT_LOADER, boundary="", soak=True),
    "second thread": Program("threads:second", soak=True),
    "two threads": Program("threads:two"),
    "distillation": Program("unusual:distillation", soak=True),
    "truncated BPTT": _by_hand("unusual:truncated", soak=True),
    "asyncio": _by_hand("unusual:asynchronous", soak=True),
    "torch.func": Program("unusual:functional", floor=WITHOUT_LOADER, soak=True),
    "DDP": Program("distributed:ddp", ranks=2),
    "torchrun, 4 ranks": Program("distributed:ddp", ranks=4, soak=True),
    "FSDP2": Program("distributed:fsdp", ranks=2),
    "JAX": Program("jax_:run", "jax", floor=WITHOUT_LOADER, boundary="", scopes=False),
    "Lightning, teacher": _by_loader("lightning_:fit_with_teacher", "lightning", soak=True),
    "tokenizing in the loop": _by_loader("positions:tokenizing", soak=True),
    "average of the weights": _by_loader("positions:averaged", soak=True),
    "average of the state": _by_loader(
        "positions:averaged_state",
        soak=True,
        fails="84 %: the average is computed apart from the weights and copied, and no probed operator does so",
    ),
    "compiled optimizer step": _by_loader("positions:compiled_step", soak=True),
    "cold torch.compile": _by_loader("positions:cold_compile", soak=True),
    "logger that sleeps": _by_hand("positions:sleeping_logger", soak=True),
    "logger that synchronizes": _by_hand("positions:syncing_logger", soak=True),
    "logger to a full pipe": _by_hand("positions:piping_logger", soak=True),
    "batches in Python": _by_hand(
        "positions:computed_batches",
        soak=True,
        fails="96 %: samples divide the time between the report and the batch, and two seconds have few",
    ),
    "batches and rare reports": _by_hand(
        "positions:parsed_batches", soak=True, fails="91 %: each gap has about seven samples, and is divided by them"
    ),
    "slices of a tensor": _by_hand("positions:slices", soak=True),
    "rollouts": _by_hand("positions:rollouts", soak=True),
    "rollouts by a decorated function": _by_hand("reinforcement:decorated", soak=True),
    "rollouts in inference mode": _by_hand("reinforcement:actor_critic", soak=True),
    "environments behind pipes": _by_hand("positions:piped_environments", soak=True),
    "pipeline by send and recv": _by_hand("positions:pipeline", ranks=2, soak=True),
    "detection": _by_loader("strangers:detection", soak=True),
    "diffusion": _by_loader("strangers:diffusion", soak=True),
    "contrastive learning": _by_loader("strangers:contrastive", soak=True),
    "Q-learning": _by_hand("strangers:q_learning", soak=True),
    "replay memory": _by_hand(
        "strangers:replayed",
        soak=True,
        fails="88 %: each step of the environment is followed by a batch, and no probed operator averages the weights",
    ),
    "critics": _by_loader("strangers:critics", soak=True),
    "mixed precision": _by_loader("strangers:mixed_precision", soak=True),
    "activation checkpoints": _by_hand("strangers:checkpointed", soak=True),
    "DDP that accumulates": Program("strangers:accumulated_ranks", floor=WITHOUT_LOADER, ranks=2, soak=True),
    "two tasks": _by_loader("strangers:tasks_of_two", soak=True),
    "meta-learning": _by_hand("strangers:meta_learning", soak=True),
    "DeepSpeed": Program("distributed:deepspeed", "deepspeed", soak=True),
}
SCORED = {name: program for name, program in PROGRAMS.items() if program.scopes}
"""The programs with steps."""
