"""Formulas: what a linear map Y = X W sends if its matrices are cut into squares or cubes of blocks (2D, 2.5D, 3D).

T  tokens     h, f  features of X and of Y     q  ranks on a side     d  depth: grids of q x q, each with T/d tokens

    split    ranks    a rank's parts of X, W, Y            elements that it receives, forward and backward
    2D       q²       Th/q², hf/q², Tf/q²                  3 (Th + hf) (q-1)/q²
    2.5D     dq²      Th/(dq²), hf/q², Tf/(dq²)            3 (Th/d + hf) (q-1)/q² + 2hf/q² (d-1)/d
    3D       q³       Th/q³, hf/q³, Tf/q³                  2 (Th + hf + Tf) (q-1)/q³

    2D    forward    in q steps a block of X goes along each row and one of W down each column (SUMMA)
          backward   the same of W, while sums of dX go along rows; and of X, while sums of dW go down columns
    3D    forward    X is gathered along one axis and W along another; sums of Y are scattered along the third
          backward   dY is gathered along the third, sums of dX and of dW are scattered along the first two

Forward alone, a product of two matrices, is a third of 2D, and half of 3D: 2n² (q-1)/q² for those of n x n, by the
shifts of Cannon's or Fox's algorithm, too.

Cut into columns or rows only (1D), W sends nothing, but all ranks have all of X or of Y, and these are sent whole:
`simdist.nn.formulas.megatron_tensor_elements`. What lies between is `mlp_elements`.

Source: van de Geijn, Watts 1997 (SUMMA); Xu et al. 2021, arXiv 2104.05343 (2D, Optimus); Wang et al. 2021, arXiv
2105.14500 (2.5D, Tesseract); Bian et al. 2021, arXiv 2105.14450 (3D); all as the documentation of Colossal-AI describes
them. For matrices of one element it has 6 (q-1)/q³ in 3D, as here, but in 2D and 2.5D q times what a rank receives.
Optimus' own (lg p)/(2√p) in place of (q-1)/q² is the time along binomial trees, where a block passes lg q links.
"""

from math import inf, pow, sqrt

from simdist.errors import as_declared, require_least, require_more

__all__ = ["cube_elements", "grid_elements", "mlp_elements", "product_lower_bound"]


@as_declared
def grid_elements(tokens: float, in_features: float, out_features: float, side: int, depth: int = 1) -> float:
    """3 (Th/d + hf) (q-1)/q² + 2hf/q² (d-1)/d: what each of d q² ranks receives in a step, in 2D (d = 1) and 2.5D.

    Of a block's four maps 3 (7bsh + 12h²) (q-1)/q² in 2D. Ranks of a grid send as much as they receive, on average.

    Args:
        tokens: T, bs of a batch.
        in_features, out_features: h and f.
        side, depth: q and d. The second term sums the gradients of the weights, which each grid has.

    Raises:
        ArgumentError: side or depth is less than 1.
    """
    require_least("side", side, 1)
    require_least("depth", depth, 1)
    weights = in_features * out_features
    along = 3 * (tokens * in_features / depth + weights) * (side - 1) / side**2
    return along + 2 * weights / side**2 * (depth - 1) / depth


@as_declared
def cube_elements(tokens: float, in_features: float, out_features: float, side: int) -> float:
    """2 (Th + hf + Tf) (q-1)/q³: what each of q³ ranks sends, and receives, in a step, in 3D.

    Args, Raises: as of `grid_elements`.
    """
    require_least("side", side, 1)
    matrices = tokens * in_features + in_features * out_features + tokens * out_features
    return 2 * matrices * (side - 1) / side**3


@as_declared
def mlp_elements(tokens: float, width: float, ffn_width: float, rows: int, columns: int, gathered: int = 1) -> float:
    """2 (T/d) (h (y-1) + f (x-1)) / xy + 2hf (d-1) / (xyd): what each of p = xyd ranks sends in an MLP's forward.

    W₁ is cut into x parts of its rows h and y parts of its columns f, W₂ the other way round, and stay where they are;
    tokens are gathered over y ranks and partial sums scattered over x, and back. With d > 1 each weight is cut
    again into d parts, which are gathered, by ranks with T/d tokens each.

        layout                    x           y      d            elements, for many ranks
        1D weight-stationary      1           p      1            2Th
        2D weight-stationary      √p/2        2√p    1            8Th/√p, where f = 4h: x is √(ph/f)
        weight-gathered           1           p/d    √(Tp/f)      4h √(Tf/p)

    Args:
        tokens, width, ffn_width: T, h and f.
        rows, columns, gathered: x, y and d.

    Raises:
        ArgumentError: there are no such parts.

    Source: Pope et al. 2022, arXiv 2211.05102, section 3.2 and appendix A.
    """
    for name, number in (("rows", rows), ("columns", columns), ("gathered", gathered)):
        require_least(name, number, 1)
    activations = tokens / gathered * (width * (columns - 1) + ffn_width * (rows - 1))
    return 2 * (activations + width * ffn_width * (gathered - 1) / gathered) / (rows * columns)


@as_declared
def product_lower_bound(
    tokens: float, in_features: float, out_features: float, ranks: int, memory_elements: float = inf
) -> float:
    """The least that some rank has to send or receive for a product Y = X W, of a p-th of the work and each matrix.

        D - (Th + hf + Tf)/p        where D, with the sides T, h and f in order, a ≥ b ≥ c, is
            3 (abc/p)^(2/3)         from p = ab/c² on: each rank has a cube, as in 3D
            2 √(abc²/p) + ab/p      from p = a/b on: a column as long as c, as in 2D
            bc + (ab + ac)/p        for fewer: a slice of a, so that the other matrix is sent whole, as in 1D

        Thf / (2√2 p √M) - M        where a rank has room for M elements: nearly n²/√(8cp) with M = c n²/p (2.5D)

    Args:
        tokens, in_features, out_features: T, h and f.
        ranks: p.
        memory_elements: M; without it, the first bound alone.

    Raises:
        ArgumentError: ranks is less than 1, or memory_elements not above 0.

    Source: Al Daas, Ballard, Grigori, Kumar, Rouse 2022, arXiv 2205.13407; with M, Irony, Toledo, Tiskin 2004, J.
    Parallel Distrib. Comput. 64(9), 1017-1026.
    """
    require_least("ranks", ranks, 1)
    require_more("memory_elements", memory_elements, 0)
    c, b, a = sorted((tokens, in_features, out_features))
    if ranks * c**2 >= a * b:
        touched = 3 * pow(a * b * c / ranks, 2 / 3)
    elif ranks * b >= a:
        touched = 2 * c * sqrt(a * b / ranks) + a * b / ranks
    else:
        touched = b * c + a * (b + c) / ranks
    crowded = a * b * c / (2 * sqrt(2) * ranks * sqrt(memory_elements)) - memory_elements
    return max(0.0, touched - (a * b + a * c + b * c) / ranks, crowded)
