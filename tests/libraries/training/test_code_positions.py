"""The functions that show a position in the loop."""

import pytest

from otel_zernel_libraries.training.code_positions import Role, position_of, role_of
from otel_zernel_libraries.training.ledger import Position
from otel_zernel_libraries.training.stacks import CodeLine

SITE = "/opt/env/lib/python3.11/site-packages"
ELSE, CHECKPOINT, COMPILE, ENVIRONMENT = None, Position.CHECKPOINT, Position.COMPILE, Position.ENVIRONMENT


@pytest.mark.parametrize(
    ("file", "name", "position"),
    [
        (f"{SITE}/torch/serialization.py", "save", CHECKPOINT),
        (f"{SITE}/torch/serialization.py", "_legacy_save.<locals>.persistent_id", CHECKPOINT),
        (f"{SITE}/torch/serialization.py", "load", ELSE),
        (f"{SITE}/torch/distributed/checkpoint/state_dict_saver.py", "save", CHECKPOINT),
        (f"{SITE}/torch/distributed/checkpoint/filesystem.py", "FileSystemWriter.write_data", CHECKPOINT),
        (f"{SITE}/torch/distributed/checkpoint/state_dict_loader.py", "load", ELSE),
        (f"{SITE}/safetensors/torch.py", "save_file", CHECKPOINT),
        (f"{SITE}/safetensors/torch.py", "load_file", ELSE),
        (f"{SITE}/accelerate/accelerator.py", "Accelerator.save_state", CHECKPOINT),
        (f"{SITE}/accelerate/accelerator.py", "Accelerator.backward", ELSE),
        (f"{SITE}/lightning/pytorch/callbacks/model_checkpoint.py", "ModelCheckpoint._save_checkpoint", CHECKPOINT),
        (f"{SITE}/lightning/pytorch/callbacks/model_checkpoint.py", "ModelCheckpoint.on_train_batch_end", ELSE),
        (f"{SITE}/pytorch_lightning/trainer/trainer.py", "Trainer.save_checkpoint", CHECKPOINT),
        (f"{SITE}/pytorch_lightning/trainer/trainer.py", "Trainer.fit", ELSE),
        (f"{SITE}/transformers/trainer.py", "Trainer._save_checkpoint", CHECKPOINT),
        (f"{SITE}/transformers/trainer.py", "Trainer.training_step", ELSE),
        (f"{SITE}/transformers/models/gpt2/tokenization_gpt2.py", "GPT2Tokenizer.save_vocabulary", CHECKPOINT),
        (f"{SITE}/deepspeed/runtime/engine.py", "DeepSpeedEngine.save_checkpoint", CHECKPOINT),
        ("/srv/train.py", "save_checkpoint", CHECKPOINT),
        ("/srv/train.py", "save", ELSE),
        ("/srv/torch/serialization.py", "save", ELSE),
        (f"{SITE}/torch/_dynamo/convert_frame.py", "_compile", COMPILE),
        (f"{SITE}/torch/_dynamo/variables/tensor.py", "TensorVariable.call_method", COMPILE),
        (f"{SITE}/torch/_dynamo/eval_frame.py", "_TorchDynamoContext.__call__.<locals>.compile_wrapper", ELSE),
        (f"{SITE}/torch/_inductor/graph.py", "GraphLowering.run", COMPILE),
        (f"{SITE}/torch/_inductor/async_compile.py", "AsyncCompile.wait", COMPILE),
        (f"{SITE}/torch/_inductor/output_code.py", "CompiledFxGraph.__call__", ELSE),
        (f"{SITE}/torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.run", ELSE),
        (f"{SITE}/torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.autotune_to_one_config", COMPILE),
        (f"{SITE}/torch/_functorch/_aot_autograd/runtime_wrappers.py", "runtime_wrapper", ELSE),
        ("/tmp/torchinductor_root/ab/cabc.py", "call", ELSE),
        (f"{SITE}/triton/compiler/compiler.py", "compile", COMPILE),
        (f"{SITE}/triton/backends/nvidia/driver.py", "compile_module_from_src", COMPILE),
        (f"{SITE}/torch/utils/cpp_extension.py", "_jit_compile", COMPILE),
        (f"{SITE}/triton/runtime/jit.py", "JITFunction.run", ELSE),
        (f"{SITE}/gymnasium/wrappers/common.py", "TimeLimit.step", ENVIRONMENT),
        (f"{SITE}/gymnasium/vector/async_vector_env.py", "AsyncVectorEnv.step_wait", ENVIRONMENT),
        (f"{SITE}/gymnasium/spaces/box.py", "Box.sample", ELSE),
        (f"{SITE}/pettingzoo/utils/wrappers/base.py", "BaseWrapper.reset", ENVIRONMENT),
        (f"{SITE}/stable_baselines3/common/vec_env/dummy_vec_env.py", "DummyVecEnv.step_wait", ENVIRONMENT),
        ("/srv/envs/maze.py", "Maze.step", ENVIRONMENT),
        ("/srv/trading_env.py", "TradingEnv.reset", ENVIRONMENT),
        ("/home/ana/env/lib/python3.11/site-packages/torch/optim/sgd.py", "SGD.step", ELSE),
        ("/srv/environments.py", "step", ENVIRONMENT),
        ("/srv/env/lib/train.py", "step", ELSE),
    ],
)
def test_the_file_and_the_name_of_a_function_show_the_position(file: str, name: str, position: Position | None) -> None:
    assert position_of(CodeLine(file, name, 1)) is position


def test_before_python_3_11_the_name_has_no_class() -> None:
    assert position_of(CodeLine(f"{SITE}/gymnasium/core.py", "step", 1)) is ENVIRONMENT


def test_a_checkout_of_pytorch_has_the_positions_of_pytorch() -> None:
    line = CodeLine("/srv/torch/serialization.py", "save", 1, "torch/serialization.py")
    assert position_of(line) is CHECKPOINT


@pytest.mark.parametrize(
    ("file", "name", "role"),
    [
        ("/usr/lib/python3.11/queue.py", "Queue.put", Role.GIVING),
        ("/usr/lib/python3.11/queue.py", "Queue.join", Role.GIVING),
        ("/usr/lib/python3.11/queue.py", "Queue.get", Role.TAKING),
        ("/usr/lib/python3.11/threading.py", "Thread.join", Role.GIVING),
        ("/usr/lib/python3.11/threading.py", "Condition.wait", None),
        ("/usr/lib/python3.11/logging/__init__.py", "Handler.acquire", Role.GIVING),
        ("/usr/lib/python3.11/concurrent/futures/_base.py", "Future.result", None),
        ("/usr/lib/python3.11/asyncio/base_events.py", "BaseEventLoop._run_once", Role.SWITCHING),
        ("/srv/data.py", "Prefetcher.__next__", Role.TAKING),
        ("/srv/train.py", "put", None),
        ("/srv/train.py", "Prefetcher.next", Role.TAKING),
        ("/srv/train.py", "main.<locals>._get_batch", Role.TAKING),
        ("/srv/train.py", "getter", None),
        ("/usr/lib/python3.11/http/client.py", "HTTPResponse.read", None),
        (f"{SITE}/requests/api.py", "get", None),
    ],
)
def test_functions_of_libraries_show_what_a_wait_is_for(file: str, name: str, role: Role | None) -> None:
    assert role_of(file, name) is role
