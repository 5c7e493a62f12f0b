# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Tensors for other processes: what torch.multiprocessing sends says that its memory is tarn's. A process that receives it is put on tarn
then, or says why it cannot be."""

from typing import Any, Callable, Dict, Tuple

#: What torch.multiprocessing did with a type before.
_before: Dict[type, Callable[[Any], Any]] = globals().get("_before", {})  # which a reload keeps


def rebuild(function: Callable[..., Any], *arguments: Any) -> Any:
    """Makes a tensor that was sent. Called in the process that receives it, by name: pickles have it."""
    from . import EnableError, enable, is_enabled
    if not is_enabled():
        try:
            enable()
        except EnableError as error:
            raise EnableError("a tensor of tarn's memory came from another process, and this one cannot open it: call tarn.torch.enable() "
                              f"here before CUDA is used, or set TARN_TORCH=1 for both ({error})") from error
    return function(*arguments)


def _reduce(tensor: Any) -> Any:
    function, arguments = _before[type(tensor)](tensor)
    if tensor.is_cuda:
        return rebuild, (function, *arguments)
    return function, arguments


def register(torch: Any) -> None:
    """Puts rebuild() around what torch.multiprocessing sends of tensors on a GPU."""
    from multiprocessing.reduction import ForkingPickler
    from torch.multiprocessing.reductions import reduce_tensor
    for kind in {torch.Tensor, torch.nn.parameter.Parameter, *torch._tensor_classes}:
        if kind not in _before:
            _before[kind] = getattr(ForkingPickler, "_extra_reducers", {}).get(kind, reduce_tensor)
            ForkingPickler.register(kind, _reduce)
