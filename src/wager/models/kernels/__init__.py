"""Our own kernels for what decoding spends its time in: products with quantised weights, and attention.

They are C++ (``*.hpp``, ``ops.cpp``), compiled once for the processor at hand, and enter a graph as operations of
their own. A row's result does not depend on the rows beside it, one alone included, nor on whether they are a chain or
a tree.
"""

from wager.models.kernels.build import Kernels, kernels

__all__ = ["Kernels", "kernels"]
