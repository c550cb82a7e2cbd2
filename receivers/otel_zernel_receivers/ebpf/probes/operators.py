"""The operators of PyTorch that are probed: at::_ops::NAME::call, which PyTorch generates for every operator.

Each hit takes 0.7 us.
"""

OPERATORS = (
    *("addmm", "addmm_out", "matmul", "einsum", "baddbmm", "_sparse_mm", "scaled_dot_product_attention"),
    *("embedding", "embedding_bag_padding_idx", "scatter_add", "scatter_reduce_two", "convolution"),
    *(f"{cell}_{overload}" for cell in ("lstm", "gru", "rnn_tanh", "rnn_relu") for overload in ("input", "data")),
)
"""Operators of models: none that calls others of the list (linear, conv2d), and none that backward calls often (mm)."""
LOSSES = (
    *("cross_entropy_loss", "nll_loss_nd", "ctc_loss_IntList", "ctc_loss_Tensor", "kl_div", "log_softmax_int"),
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits"),
)
"""Operators that are usually the last of a pass. Their result is what the program looks at."""
REDUCTIONS = ("mean", "sum")
"""Operators that may end a pass but begin none."""
SAMPLES = (
    *("argmax", "argmin", "max", "max_dim", "min_dim"),
    *("multinomial", "bernoulli", "normal_Tensor_Tensor"),
)
"""Operators that choose tokens or actions. They begin no pass. The program usually waits for their result.

`topk` is none: a mixture of experts calls it in every layer.
"""
BATCHES, NOISES = ("uniform_", "random_", "random__from", "random__to"), ("normal_",)
"""Operators that draw random numbers: outside passes and scopes, the program makes a batch with them.

After a DataLoader, normally distributed numbers are noise that the model learns from, as in diffusion.
"""
IN_PLACE = ("add__Tensor", "sub__Tensor", "mul__Tensor", "lerp__Scalar", "lerp__Tensor")
"""Operators that change one tensor: programs update and average weights with them, one after the other."""
UPDATES = (
    *("_foreach_add__List", "_foreach_add__Scalar", "_foreach_mul__Scalar", "_foreach_lerp__Scalar", "_foreach_sqrt"),
    *(
        f"_foreach_{operator}__{overload}"
        for operator in ("addcdiv", "addcmul")
        for overload in ("Scalar", "ScalarList")
    ),
)
"""Operators with which optimizers update all parameters at once."""
