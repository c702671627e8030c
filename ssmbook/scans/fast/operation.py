"""How PyTorch learns about a recurrence: as an operation with rules for shapes, gradients and ``vmap``.

A compiled loop and a kernel are black boxes to PyTorch. An `Operation` is such a box with
the rules that PyTorch's transforms ask for: its gradients, the shapes of its results
(``torch.compile``, ``torch.export``, tensors on ``meta``), and what one more batch
dimension means (``vmap``).
"""

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch.autograd import forward_ad

_library = torch.library.Library("ssmbook", "FRAGMENT")


def active_transform(*tensors: Tensor) -> str | None:
    """Report which kind of transform of PyTorch is at work, if any, so that we take a form it understands.

    "derivative": forward mode or ``torch.func``, for which an operation has no rule;
    "tracer": anything else that has to see registered operations, such as
    ``torch.compile``, ``vmap``, tensors on ``meta``. All private names of PyTorch are used
    here.
    """
    if torch.compiler.is_compiling():
        return "tracer"
    transforms = torch._C._functorch.get_interpreter_stack() or ()
    if forward_ad._current_level >= 0 or any(t.key() != TransformType.Vmap for t in transforms):
        return "derivative"
    if transforms or torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack():
        return "tracer"
    if torch._C._dispatch_tls_is_dispatch_key_included("VmapMode"):
        return "tracer"
    plain = all(type(t) in (Tensor, torch.nn.Parameter) and not t.is_meta for t in tensors)
    return None if plain else "tracer"


def differentiated_again() -> bool:
    """Whether a backward pass is itself to be differentiated."""
    return torch.is_grad_enabled() or active_transform() == "derivative"


class Operation:
    """An operation of PyTorch, ``torch.ops.ssmbook.NAME``, with its rules for shapes, gradients and ``vmap``.

    Where no transform is at work, we skip PyTorch's dispatcher: its overhead equals a scan of
    100,000 numbers.

    Parameters
    ----------
    schema : str
        Name, arguments and results, in PyTorch's notation.
    function : callable
        Computes the results.
    like : callable
        Makes results of the same shapes and dtypes, without their numbers.
    keep, gradients : callable, optional
        ``setup_context`` and ``backward`` of an autograd function.
    shared : collection of int
        The places of arguments that have no batch dimensions.
    """

    def __init__(self, schema, function, like, keep=None, gradients=None, shared=()):
        name = schema.partition("(")[0]
        self.function, self.keep, self.gradients, self.shared = function, keep, gradients, shared
        _library.define(schema)
        _library.impl(name, function, "CompositeExplicitAutograd")
        self.registered = getattr(torch.ops.ssmbook, name).default
        torch.library.register_fake(self.registered, like, lib=_library)
        torch.library.register_vmap(self.registered, self._map, lib=_library)
        if gradients:
            torch.library.register_autograd(self.registered, gradients, setup_context=keep, lib=_library)

    def __call__(self, *given):
        tensors = [t for t in given if isinstance(t, Tensor)]
        if active_transform(*tensors):
            return self.registered(*given)
        recorded = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        return _Recorded.apply(self, *given) if recorded else self.function(*given)

    def _map(self, info, in_dims, *given):
        """The rule for ``vmap``: the mapped dimension is one more batch dimension.

        One call for each element where an argument is mapped that has no batch dimensions.
        """
        n = info.batch_size
        pairs = list(zip(given, in_dims, strict=True))
        if any(in_dims[i] is not None for i in self.shared):
            each = ([t if dim is None else t.select(dim, k) for t, dim in pairs] for k in range(n))
            results = zip(*(self(*element) for element in each), strict=True)
            outputs = tuple(map(torch.stack, results))
        else:
            outputs = self(
                *(t if i in self.shared else _map_first(t, dim, n) for i, (t, dim) in enumerate(pairs))
            )
        return outputs, (0,) * len(outputs)


def _map_first(t, dim: int | None, size: int):
    if not isinstance(t, Tensor):
        return t
    return t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)


class _Recorded(torch.autograd.Function):
    """An operation with its gradients, without the dispatcher."""

    @staticmethod
    def forward(ctx, operation, *given):
        ctx.gradients, output = operation.gradients, operation.function(*given)
        operation.keep(ctx, given, output)
        return output

    @staticmethod
    def backward(ctx, *changes):
        return None, *ctx.gradients(ctx, *changes)
