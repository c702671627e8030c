"""The fast forms of the scans: the numbers of the naive loops, by other routes.

Every scan is one of three recurrences, and each of them has a file here:

    diagonal    h_t = a_t h_{t-1} + b_t, a number for each channel
    selective   h_t = exp(Delta_t A) h_{t-1} + B_t u_t, y_t = C_t h_t, without keeping any h_t
    lti         h_t = A h_{t-1} + u_t, one matrix for all steps; its powers do without most of them

and up to four forms. `loops` has them as loops that Numba compiles (their exponential is in
`exponential`), `kernels` as programs for a GPU. Their own files have them in PyTorch, step
by step and with time cut into blocks, pieces or chunks.

The life of one call, of ``diagonal_scan(a, b)`` for example:

1. The public function checks its arguments and converts half precision to float32.
2. `active_transform` looks whether a transform of PyTorch is at work. Forward mode and ``torch.func``
   get the recurrence step by step, which PyTorch can differentiate as it likes. Otherwise we call an
   `Operation`: by PyTorch's dispatcher if a tracer such as ``torch.compile`` watches, else
   directly, as an autograd function if gradients are recorded.
3. The operation runs a kernel, a compiled loop, or the form in PyTorch, whichever `engines` finds,
   with the state in double precision.
4. Its backward pass is the same recurrence the other way: a second operation, with the same forms.
"""
