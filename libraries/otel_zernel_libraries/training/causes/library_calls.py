"""What to try against the time in calls of libraries that training programs use beside their model.

A call is known by the frames below the user's line: from there inwards, the first one of a known library.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from otel_zernel_libraries.training.code_paths import Tier, tier_of
from otel_zernel_libraries.training.library_folders import path_in_library
from otel_zernel_libraries.training.stacks import CodeLine


class LibraryCall(NamedTuple):
    """A kind of libraries, and a sentence for each use. An empty one says that the advice on the activity is better."""

    functions: str
    """A pattern that matches the beginning of `PATH:FUNCTION`, with the path in the library's folder and the function
    without its class."""
    loading: str = ""
    """Where a training thread or a worker loads data."""
    beside: str = ""
    """Elsewhere."""
    growing: str = ""
    """If each step takes longer than the one before."""
    waits_for_others: bool = True
    """Whether a wait for another thread or process in its calls is its time, too."""


def _anywhere(functions: str, text: str) -> LibraryCall:
    return LibraryCall(functions, text, text)


_TEXTS: Final = (
    "Prepare texts once, before training, and store the numbers (`dataset.map(tokenize, batched=True)`), "
    "or prepare them in worker processes."
)
_ONCE_DECODED: Final = "Decode it once, before training, and store the result, or decode it in worker processes."
_TIMES_OF_START: Final = "each start takes milliseconds"
_GROWING_COPY: Final = (
    "Collect new values in a list, and join them once: each `append` or `concat` copies all old ones."
)

_CALLS: Final = (
    # parts of PyTorch; other parts are the model itself, or load data for it
    _anywhere(
        r"torch/profiler/|(?:cProfile|profile|tracemalloc)\.py|(?:line|memory)_profiler"
        r"|pyinstrument/|viztracer/",
        "Profile a few steps only (`torch.profiler.schedule`): the profiler takes time in each step.",
    ),
    LibraryCall(
        r"torch/distributed/distributed_c10d\.py:\w*object\w*",
        beside="Gather numbers in one tensor, every few steps: Python objects are pickled, and travel in two parts.",
    ),
    _anywhere(
        r"torch/(?:cuda|mps|accelerator)/(?:\w+\.py):empty_cache",
        "Do not call `empty_cache()` in each step: PyTorch then has to ask the driver for the same memory again.",
    ),
    LibraryCall(
        r"torch/_tensor_str\.py",
        beside="Print numbers, not tensors, and every few steps: the text of a tensor is slow.",
    ),
    LibraryCall(r"torch/utils/data/dataloader\.py:(?:__init__|_get_iterator|_shutdown_workers)"),  # other causes
    # what programs do after a step
    LibraryCall(
        r"(?:wandb|mlflow|comet_ml|neptune|clearml|aim|swanlab|trackio|tensorboardX|tensorboard|torch/utils/tensorboard)/",
        beside="Log to the tracker every few steps, and numbers only: histograms, images and tables take long.",
    ),
    _anywhere(
        r"(?:logging|loguru|structlog|absl/logging|tqdm)/|rich/(?!progress\.py:track)",
        "Log every few steps, or let another thread write: `logging.handlers.QueueHandler` and `QueueListener`.",
    ),
    LibraryCall(
        r"(?:matplotlib|mpl_toolkits|seaborn|plotly|bokeh|altair)/",
        beside="Draw every so many steps only, or in another process, from numbers that the program has stored.",
        growing="Close each figure after use: `plt.close(figure)`.",
    ),
    LibraryCall(
        r"(?:sklearn|torchmetrics|torcheval|ignite/metrics|evaluate|sacrebleu|rouge_score|pycocotools|seqeval|jiwer"
        r"|bert_score|nltk/(?:translate|metrics)|statsmodels)/",
        beside="Compute the metric every few steps, or at the end of an epoch from outputs that were kept.",
    ),
    _anywhere(
        r"(?:psutil|pynvml|py3nvml|GPUtil|nvitop|gpustat)(?:/|\.py)",
        "Read the state of the machine in another thread, every few seconds: steps need not wait for it.",
    ),
    LibraryCall(
        r"(?:subprocess|pty)\.py|pexpect/",
        f"Start the program once, before the loop, and send it work through a pipe: {_TIMES_OF_START}.",
        f"Start this program less often, or go on while it runs (`subprocess.Popen`): {_TIMES_OF_START}.",
    ),
    LibraryCall(
        r"torch/multiprocessing/reductions\.py|multiprocessing/(?:queues|connection|reduction|resource_sharer)\.py",
        "Let workers return one tensor for a whole batch: the main process unpacks each tensor that they return.",
        "Send fewer and larger values between processes: each is packed, sent and unpacked.",
        waits_for_others=False,
    ),
    _anywhere(
        r"(?:multiprocessing|torch/multiprocessing)/(?:process|context|spawn|popen_\w+|managers)\.py"
        r"|concurrent/futures/process\.py|billiard/",
        f"Start the processes once, before the loop, and send them work through a queue: {_TIMES_OF_START}.",
    ),
    _anywhere(
        r"copy\.py",
        "Copy every few steps only, or with `target.copy_(source)` into tensors that stay: `deepcopy` makes all anew.",
    ),
    # data
    LibraryCall(
        r"(?:requests|urllib|urllib3|http|httpx|httpcore|aiohttp|websockets?|boto3|botocore|s3transfer|s3fs|gcsfs|adlfs"
        r"|fsspec|google/(?:cloud|auth|resumable_media)|azure|huggingface_hub|smart_open|paramiko|grpc|kafka|zmq)/"
        r"|(?:ftplib|smtplib|socket|ssl)\.py",
        "Keep a copy of the data on a local disk, or fetch many samples with one request: each waits for the network.",
        "Send or fetch it in another thread, or every few steps only: each request waits for its answer.",
    ),
    LibraryCall(
        r"(?:sqlite3|psycopg|psycopg2|sqlalchemy|pymysql|MySQLdb|mysql|pymongo|redis|duckdb|asyncpg|peewee|django/db"
        r"|clickhouse_\w+|cassandra|elasticsearch|influxdb\w*)/",
        "Read many rows with one query, or export them to files before training: each query waits for the database.",
        "Write many rows in one transaction, in another thread or every few steps only: each commit waits for a disk.",
    ),
    _anywhere(
        r"(?:tokenizers|sentencepiece|tiktoken|spacy|nltk|sacremoses|jieba|stanza|bs4)/"
        r"|transformers/(?:.*/)?tokenization_",
        _TEXTS,
    ),
    LibraryCall(
        r"(?:PIL|cv2|skimage|imageio|torchvision/(?:transforms|io|datasets)|albumentations|albucore|imgaug|kornia)/",
        "Resize images once, before training, and store them: small images are read, decoded and changed faster.",
        "Prepare images in worker processes, or before training; draw those for people every so many steps only.",
    ),
    _anywhere(
        r"(?:librosa|soundfile|audioread|torchaudio|torchcodec|av|decord|moviepy|pydub|resampy|soxr|scipy/(?:signal|io))"
        r"(?:/|\.py)",
        _ONCE_DECODED,
    ),
    LibraryCall(
        r"(?:pandas|polars|dask|pyarrow|datasets)/",
        "Make arrays or tensors of the columns once, before training: it is slow to take single rows of a table.",
        "Make arrays of the columns once, before training. Collect new rows in a list: a table copies all of them.",
        _GROWING_COPY,
    ),
    LibraryCall(
        r"(?:h5py|zarr|numcodecs|lmdb|netCDF4|xarray|tables|tiledb|rasterio|nibabel|pydicom|SimpleITK)(?:/|\.py)",
        "Read a batch as one slice, and store it in chunks of that size without compression, or as a `numpy.memmap`.",
        "Read or write many values at once, in another thread or every few steps only.",
    ),
    LibraryCall(
        r"(?:gzip|bz2|lzma|zipfile|tarfile)(?:/|\.py)|(?:compression|lz4|blosc2?)/",
        "Unpack the files once, before training, or unpack them in worker processes.",
        "Write it every few steps, or pack it in another process.",
    ),
    LibraryCall(
        r"(?:json|yaml|xml|lxml|simplejson|joblib|cloudpickle|dill|toml|tomllib)/|(?:pickle|csv|ast)\.py",
        "Parse the files once, before training, and store arrays: to parse them takes longer than to read them.",
        "Write it every few steps, or in another thread.",
        "Append what is new to a file: to write all old results again takes longer in each step.",
    ),
    _anywhere(
        r"random\.py",
        "Draw a whole batch at once: indexes from `torch.randint`, of samples in one tensor or a list. "
        "A `deque` takes longer for an entry far from its ends.",
    ),
    LibraryCall(r"(?:re|regex)(?:/|\.py)", _TEXTS),
    LibraryCall(
        r"numpy/",
        beside="Compute it with operators of PyTorch, or every few steps only: NumPy runs on one thread of the CPU.",
        growing=_GROWING_COPY,
    ),
)
_ITERATORS: Final = ("__iter__", "__next__")
"""Functions around the work of others: a bar of the progress is around the whole loader."""
_PATTERNS: Final = [(re.compile(call.functions), call) for call in _CALLS]


def library_call(stack: Sequence[CodeLine]) -> LibraryCall | None:
    """The call of a known library that a stack is in, whose innermost line is the first. None without one."""
    user = next((at for at, frame in enumerate(stack) if tier_of(frame) is Tier.USER), len(stack))
    calls = (_call_of(path_in_library(frame), frame.function) for frame in reversed(stack[:user]))
    return next((call for call in calls if call), None)


@lru_cache(maxsize=8_192)
def _call_of(path: str, function: str) -> LibraryCall | None:
    """The kind of library that a function belongs to."""
    name = function.rpartition(".")[2]
    if not path or name in _ITERATORS:
        return None
    return next((call for pattern, call in _PATTERNS if pattern.match(f"{path}:{name}")), None)
